// PromptEncoder: text and chats → token ids, and back. The one place where the server meets tokenizer and chat
// template. Immutable: any thread may call it; costs are those of the text pools.
#ifndef MOE_SERVER_PROMPT_ENCODER_H_
#define MOE_SERVER_PROMPT_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/model_loader.h"
#include "parallel/base/status.h"

namespace moe {

struct ChatPrompt;  // chat_prompt.h

struct EncodedPrompt {
  std::vector<int32_t> ids;
  std::string rendered;  // the chat template's text; empty for text
};

class PromptEncoder {
 public:
  // `model` outlives this.
  explicit PromptEncoder(const LoadedModel& model) : model_(model) {}

  bool has_tokenizer() const { return model_.tokenizer != nullptr; }
  bool has_chat_template() const { return model_.chat_template != nullptr; }
  const Tokenizer* tokenizer() const { return model_.tokenizer.get(); }

  // FAILED_PRECONDITION without what it needs; INVALID_ARGUMENT for what the template refuses.
  // Raw text: special tokens written in it are recognised, and `add_special` adds those of the post-processor.
  StatusOr<EncodedPrompt> EncodeText(const std::string& text, bool add_special) const;
  // Only what the template itself wrote can become special tokens, never the content of messages.
  StatusOr<EncodedPrompt> EncodeChat(const ChatPrompt& chat) const;
  StatusOr<std::string> Decode(const std::vector<int32_t>& ids, bool keep_special) const;

 private:
  const LoadedModel& model_;
};

}  // namespace moe

#endif  // MOE_SERVER_PROMPT_ENCODER_H_
