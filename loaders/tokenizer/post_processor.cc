#include "loaders/tokenizer/post_processor.h"

#include <string>

namespace moe {
namespace {

StatusOr<std::vector<int32_t>> TemplateTokenIds(const Json& json, const std::string& name, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* tokens, RequireObject(json, "special_tokens", where));
  const std::string tokens_where = Cat(where, ".special_tokens");
  MOE_ASSIGN_OR_RETURN(const Json* token, RequireObject(*tokens, name, tokens_where));
  const std::string token_where = Cat(tokens_where, "[\"", name, "\"]");
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(*token, "ids", token_where));
  std::vector<int32_t> ids;
  for (const Json& value : *list) {
    MOE_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(value, Cat(token_where, ".ids")));
    ids.push_back(id);
  }
  return ids;
}

// `single` lists special tokens around one {"Sequence": {"id": "A"}}.
StatusOr<PostProcessor> ReadTemplate(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* single, RequireArray(json, "single", where));
  PostProcessor result;
  bool seen_text = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const Json& part = (*single)[i];
    const std::string part_where = Cat(where, ".single[", i, "]");
    if (part.is_object() && FindField(part, "Sequence") != nullptr) {
      if (seen_text) return UnsupportedError(part_where, ": the text stands in the template twice");
      seen_text = true;
      continue;
    }
    if (!part.is_object()) return InvalidError(part_where, " is ", part.type_name(), ", expected an object");
    MOE_ASSIGN_OR_RETURN(const Json* special, RequireObject(part, "SpecialToken", part_where));
    MOE_ASSIGN_OR_RETURN(const std::string name, RequireString(*special, "id", Cat(part_where, ".SpecialToken")));
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TemplateTokenIds(json, name, where));
    auto& side = seen_text ? result.suffix : result.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_text) return UnsupportedError(where, ".single has no place for the text");
  return result;
}

// "cls": ["[CLS]", 101]
StatusOr<int32_t> ReadTokenPair(const Json& json, std::string_view name, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* pair, RequireArray(json, name, where));
  if (pair->size() != 2) return InvalidError(where, ".", name, " is not a pair of token and id");
  return ReadTokenId((*pair)[1], Cat(where, ".", name));
}

StatusOr<PostProcessor> ReadSequence(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "processors", where));
  PostProcessor result;
  for (size_t i = 0; i < list->size(); ++i) {
    MOE_ASSIGN_OR_RETURN(const PostProcessor step, ReadPostProcessor(&(*list)[i], Cat(where, ".processors[", i, "]")));
    result.prefix.insert(result.prefix.begin(), step.prefix.begin(), step.prefix.end());
    result.suffix.insert(result.suffix.end(), step.suffix.begin(), step.suffix.end());
  }
  return result;
}

}  // namespace

StatusOr<PostProcessor> ReadPostProcessor(const Json* json, std::string_view where) {
  if (json == nullptr || json->is_null()) return PostProcessor();
  if (!json->is_object()) return InvalidError(where, " is ", json->type_name(), ", expected an object");
  MOE_ASSIGN_OR_RETURN(const std::string type, RequireString(*json, "type", where));
  if (type == "ByteLevel") return PostProcessor();  // Only moves offsets.
  if (type == "TemplateProcessing") return ReadTemplate(*json, where);
  if (type == "Sequence") return ReadSequence(*json, where);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PostProcessor result;
    MOE_ASSIGN_OR_RETURN(const int32_t cls, ReadTokenPair(*json, "cls", where));
    MOE_ASSIGN_OR_RETURN(const int32_t sep, ReadTokenPair(*json, "sep", where));
    result.prefix.push_back(cls);
    result.suffix.push_back(sep);
    return result;
  }
  return UnsupportedError(where, ".type \"", type, "\"");
}

}  // namespace moe
