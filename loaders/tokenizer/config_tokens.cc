#include "loaders/tokenizer/config_tokens.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace moe {
namespace {

Json TokenJson(int32_t id, std::string content, bool special) {
  return {{"id", id}, {"content", std::move(content)}, {"normalized", false}, {"special", special}};
}

// The order in which the reference gives ids to those that have none.
constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

// A string, or an object with `content`.
StatusOr<std::string> TokenContent(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return InvalidError(where, " is ", value.type_name(), ", expected a string or an object");
  return RequireString(value, "content", where);
}

StatusOr<std::vector<std::string>> SpecialNames(const Json& config) {
  std::vector<std::string> names;
  for (const std::string_view name : kNames) {
    MOE_ASSIGN_OR_RETURN(std::string content, NamedToken(config, name));
    if (!content.empty()) names.push_back(std::move(content));
  }
  for (const std::string_view list_name : {"extra_special_tokens", "additional_special_tokens"}) {
    const Json* list = FindField(config, list_name);
    if (list == nullptr) continue;
    const std::string where = Cat(kTokenizerConfigFile, ": ", list_name);
    if (!list->is_array() && !list->is_object()) {
      return InvalidError(where, " is ", list->type_name(), ", expected an array or an object");
    }
    for (const auto& [key, value] : list->items()) {
      MOE_ASSIGN_OR_RETURN(std::string content, TokenContent(value, Cat(where, "[", key, "]")));
      names.push_back(std::move(content));
    }
  }
  return names;
}

// {"5": {"content": "<s>", "special": true, …}}
StatusOr<int32_t> ReadIdKey(std::string_view key, const std::string& where) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
    return InvalidError(where, ": the key is not an id from 0 to ", kMaxTokenId);
  }
  return static_cast<int32_t>(id);
}

}  // namespace

StatusOr<std::string> NamedToken(const Json& config, std::string_view name) {
  const Json* value = FindField(config, name);
  if (value == nullptr || value->is_boolean()) return std::string();
  return TokenContent(*value, Cat(kTokenizerConfigFile, ": ", name));
}

void ConfigTokens::Add(int32_t id, std::string content, bool special) {
  by_id_[id] = TokenJson(id, std::move(content), special);
}

Status ConfigTokens::ReadIds(const Json& config, std::string_view added_tokens_json) {
  if (FindField(config, "added_tokens_decoder") != nullptr) {
    MOE_ASSIGN_OR_RETURN(const Json* tokens, RequireObject(config, "added_tokens_decoder", kTokenizerConfigFile));
    for (const auto& [key, value] : tokens->items()) {
      const std::string where = Cat(kTokenizerConfigFile, ": added_tokens_decoder[\"", key, "\"]");
      MOE_ASSIGN_OR_RETURN(const int32_t id, ReadIdKey(key, where));
      MOE_ASSIGN_OR_RETURN(std::string content, TokenContent(value, where));
      if (!value.is_object()) return InvalidError(where, " is ", value.type_name(), ", expected an object");
      Json token = TokenJson(id, std::move(content), false);
      for (const char* flag : {"special", "lstrip", "rstrip", "single_word"}) {
        MOE_ASSIGN_OR_RETURN(token[flag], BoolOr(value, flag, false, where));
      }
      by_id_[id] = std::move(token);
    }
    return absl::OkStatus();
  }
  if (added_tokens_json.empty()) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const Json file, ParseJsonObject(added_tokens_json, kAddedTokensFile));
  for (const auto& [content, value] : file.items()) {
    MOE_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(value, Cat(kAddedTokensFile, ": \"", content, "\"")));
    if (Has(id) && ContentOrNull(id) != nullptr && *ContentOrNull(id) == content) continue;
    Add(id, content, false);
  }
  return absl::OkStatus();
}

Status ConfigTokens::ReadNames(const Json& config, const std::function<int32_t(std::string_view)>& find,
                               int32_t next_id, int32_t limit) {
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> names, SpecialNames(config));
  std::map<std::string, int32_t> by_content;
  for (const auto& [id, token] : by_id_) by_content.emplace(token["content"].get<std::string>(), id);
  next_id = std::max(next_id, highest_id() + 1);
  for (const std::string& name : names) {
    if (name.empty()) continue;
    if (const auto known = by_content.find(name); known != by_content.end()) {
      by_id_[known->second]["special"] = true;
      continue;
    }
    int32_t id = find(name);
    if (id == Vocabulary::kNone) id = next_id++;
    if (id >= limit) continue;
    Add(id, name, true);
    by_content.emplace(name, id);
  }
  return absl::OkStatus();
}

const std::string* ConfigTokens::ContentOrNull(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second["content"].get_ref<const std::string&>();
}

SpecialIds ConfigTokens::special_ids() const {
  SpecialIds special;
  for (const auto& [id, token] : by_id_) {
    if (token["special"].get<bool>()) special.Add(id);
  }
  return special;
}

StatusOr<AddedVocabulary> ConfigTokens::Finish(std::string_view where) const {
  Json list = Json::array();
  for (const auto& [id, token] : by_id_) list.push_back(token);
  return AddedVocabulary::Create(&list, where);
}

}  // namespace moe
