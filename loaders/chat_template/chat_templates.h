// The chat templates of a model: one, or one for each of several uses.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATES_H_
#define MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATES_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/chat_template/chat_template.h"
#include "parallel/base/status.h"

namespace moe {

class ChatTemplates {
 public:
  // `value` is "chat_template" of tokenizer_config.json: a string, a list of {"name", "template"}, or a string that was
  // read from chat_template.jinja. INVALID if it is neither, or a list without a template "default"; else the errors of
  // ChatTemplate::Create. Templates of a list that are neither "default" nor "tool_use" are not looked at.
  static StatusOr<std::unique_ptr<ChatTemplates>> Create(const nlohmann::ordered_json& value,
                                                         const std::map<std::string, std::string>& special_tokens,
                                                         std::string_view file);

  // From now on templates see the keys of tools in order, at every level. See SortsTools.
  void SortTools() { sorts_tools_ = true; }

  // The template for a request: "tool_use" if there is one and the request has tools, else "default".
  const ChatTemplate& Select(const ChatRenderInput& input) const;
  // Select(input).Render(input), but for SortTools().
  StatusOr<std::vector<RenderedPiece>> Render(const ChatRenderInput& input) const;

 private:
  ChatTemplates() = default;
  std::unique_ptr<ChatTemplate> default_;
  std::unique_ptr<ChatTemplate> tool_use_;  // May be null.
  bool sorts_tools_ = false;
};

// The variables bos_token, eos_token, … of a template: every "…_token" of tokenizer_config.json that is a text or an
// object with "content", and what "extra_special_tokens" names.
std::map<std::string, std::string> SpecialTokensFromConfig(const nlohmann::ordered_json& tokenizer_config);

// Whether the tokenizer class that a checkpoint publishes sorts the tools of a request before it renders them: Kimi's.
bool SortsTools(const nlohmann::ordered_json& tokenizer_config);

// Create() with what tokenizer_config.json holds. INVALID if it has no chat_template.
StatusOr<std::unique_ptr<ChatTemplates>> ChatTemplatesFromConfig(const nlohmann::ordered_json& tokenizer_config,
                                                                 std::string_view file);

}  // namespace moe

#endif  // MOE_LOADERS_CHAT_TEMPLATE_CHAT_TEMPLATES_H_
