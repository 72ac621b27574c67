// Text under construction, with the provenance of each stretch.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_TEXT_H_
#define MOE_LOADERS_CHAT_TEMPLATE_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "loaders/chat_template/value.h"

namespace moe::chat {

// Grows a string within the budget of a Runtime: an append that would exceed it fails the render and adds nothing.
class Text {
 public:
  explicit Text(Runtime& runtime) : runtime_(runtime) {}
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text();

  void Append(std::string_view text, bool trusted);
  void AppendRepeated(std::string_view text, size_t times, bool trusted);
  void Append(const StringData& source) { AppendSlice(source, 0, source.view.size()); }
  // Bytes [begin, end) of `source`, each with the provenance it has there.
  void AppendSlice(const StringData& source, size_t begin, size_t end);
  // Drops what lies past `bytes`.
  void Truncate(size_t bytes);

  const std::string& str() const { return text_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return text_.size(); }

  // Makes the string; the text is empty afterwards.
  Value Finish();

 private:
  bool Grow(size_t bytes);
  void AddRun(size_t length, bool trusted);

  Runtime& runtime_;
  std::string text_;
  std::vector<Run> runs_;
  size_t charged_bytes_ = 0;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_TEXT_H_
