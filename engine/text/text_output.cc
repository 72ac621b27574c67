#include "engine/text/text_output.h"

#include <utility>

namespace moe {

TextOutput::TextOutput(const Tokenizer& tokenizer, TextOutputOptions options)
    : detokenizer_(tokenizer, options.keep_special_tokens), options_(std::move(options)), matcher_(options_.stop) {}

std::string TextOutput::Take(StopMatcher::Result result) {
  if (result.matched) {
    stopped_ = true;
    stop_match_ = std::move(result.match);
    if (options_.include_stop) result.text += stop_match_;
  }
  return std::move(result.text);
}

std::string TextOutput::Push(int32_t token, bool is_end) {
  if (stopped_) return {};
  if (is_end) return {};
  ++tokens_;
  return Take(matcher_.Push(detokenizer_.Push(token), LooksForStops()));
}

std::string TextOutput::Finish() {
  if (stopped_) return {};
  std::string text = Take(matcher_.Push(detokenizer_.Finish(), LooksForStops()));
  if (!stopped_) text += Take(matcher_.Finish());
  return text;
}

}  // namespace moe
