// Building a Tokenizer where a checkpoint has no tokenizer.json.
#include <string>

#include "loaders/tokenizer/config_tokens.h"
#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/tokenizer.h"
#include "loaders/tokenizer/tokenizer_parts.h"

namespace moe {
namespace {

// A tiktoken file is text that begins with Base64, a SentencePiece model begins with a tag. Both are found under the
// name tokenizer.model.
bool IsTiktoken(std::string_view bytes) {
  if (bytes.empty()) return false;
  const char c = bytes[0];
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const VocabularyFile& file) {
  Json config = Json::object();
  if (!file.config_json.empty()) {
    MOE_ASSIGN_OR_RETURN(config, ParseJsonObject(file.config_json, kTokenizerConfigFile));
  }
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  MOE_RETURN_IF_ERROR(tokenizer->ReadConfig(config));
  const bool is_tiktoken = file.name == "tiktoken.model" || file.name.ends_with(".tiktoken") || IsTiktoken(file.bytes);
  MOE_RETURN_IF_ERROR(is_tiktoken ? tokenizer->ReadTiktoken(file, config) : tokenizer->ReadSentencePiece(file, config));
  return tokenizer;
}

Status Tokenizer::ReadBosAndEos(const Json& config) {
  const auto add = [&](const char* flag, const char* name, std::vector<int32_t>* ids) -> Status {
    MOE_ASSIGN_OR_RETURN(const bool wanted, BoolOr(config, flag, false, kTokenizerConfigFile));
    const std::string& token = SpecialToken(name);
    if (!wanted || token.empty()) return absl::OkStatus();
    const std::optional<int32_t> id = TokenToId(token);
    if (!id.has_value()) {
      return InvalidError(kTokenizerConfigFile, ": ", flag, ", but ", name, " \"", token,
                          "\" is not in the vocabulary");
    }
    ids->push_back(*id);
    return absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(add("add_bos_token", "bos_token", &parts_->post_processor.prefix));
  return add("add_eos_token", "eos_token", &parts_->post_processor.suffix);
}

}  // namespace moe
