#include "server/prompt_encoder.h"

#include <utility>

namespace moe {

StatusOr<EncodedPrompt> PromptEncoder::EncodeText(const std::string& text, bool add_special) const {
  if (!has_tokenizer()) return absl::FailedPreconditionError("this model has no tokenizer; send token ids");
  EncodeOptions options;
  options.add_special_tokens = add_special;
  options.recognize_special = true;
  EncodedPrompt encoded;
  MOE_ASSIGN_OR_RETURN(encoded.ids, model_.tokenizer->Encode(text, options));
  return encoded;
}

StatusOr<std::string> PromptEncoder::Decode(const std::vector<int32_t>& ids, bool keep_special) const {
  if (!has_tokenizer()) return absl::FailedPreconditionError("this model has no tokenizer");
  return model_.tokenizer->Decode(ids, keep_special);
}

}  // namespace moe
