#include "loaders/tokenizer/token_model.h"

#include <string>
#include <utility>

#include "loaders/tokenizer/bpe.h"
#include "loaders/tokenizer/unigram.h"

namespace moe {
namespace {

// Files from before the `type` field are told apart by what they hold.
StatusOr<std::string> ModelType(const Json& json, std::string_view where) {
  if (FindField(json, "type") != nullptr) return RequireString(json, "type", where);
  if (FindField(json, "merges") != nullptr) return std::string("BPE");
  const Json* vocab = FindField(json, "vocab");
  if (vocab != nullptr && vocab->is_array()) return std::string("Unigram");
  return InvalidError(where, ".type is missing");
}

}  // namespace

StatusOr<std::unique_ptr<TokenModel>> CreateTokenModel(const Json& json, SpecialIds special, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const std::string type, ModelType(json, where));
  if (type == "BPE") return BpeModel::Create(json, std::move(special), where);
  if (type == "Unigram") return UnigramModel::Create(json, std::move(special), where);
  return UnsupportedError(where, ".type \"", type, "\" (supported: BPE, Unigram)");
}

}  // namespace moe
