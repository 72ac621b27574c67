#include <utility>
#include <vector>

#include "server/chat_prompt.h"
#include "server/prompt_encoder.h"

namespace moe {

StatusOr<EncodedPrompt> PromptEncoder::EncodeChat(const ChatPrompt& chat) const {
  if (!has_tokenizer()) return absl::FailedPreconditionError("chat: this model has no tokenizer; send token ids");
  if (!has_chat_template()) {
    return absl::FailedPreconditionError("chat: this model has no chat template; send text instead");
  }
  StatusOr<std::vector<RenderedPiece>> pieces = model_.chat_template->Render(chat);
  if (!pieces.ok()) return InvalidError("chat: ", pieces.status().message());
  std::vector<Tokenizer::Span> spans;
  EncodedPrompt encoded;
  for (const RenderedPiece& piece : *pieces) {
    spans.push_back({piece.text, /*recognize_special=*/piece.trusted});
    encoded.rendered += piece.text;
  }
  // The template writes the begin-of-text token itself where the model wants one.
  MOE_ASSIGN_OR_RETURN(encoded.ids, model_.tokenizer->EncodeSpans(spans, /*add_special_tokens=*/false));
  return encoded;
}

}  // namespace moe
