#include "loaders/tokenizer/json_fields.h"

namespace moe {
namespace {

constexpr int kMaxNesting = 64;

// Counts brackets outside strings, before anything builds a tree of them.
bool NestsTooDeeply(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

Status WrongType(std::string_view where, std::string_view name, const Json* found, std::string_view expected) {
  return InvalidError(where, ".", name, " is ", found == nullptr ? "missing" : found->type_name(), ", expected ",
                      expected);
}

}  // namespace

StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view file) {
  if (NestsTooDeeply(text)) return InvalidError(file, ": JSON nested more than ", kMaxNesting, " levels deep");
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return CorruptError(file, ": not JSON, or the file is cut (", text.size(), " bytes)");
  if (!json.is_object()) return InvalidError(file, ": JSON ", json.type_name(), ", expected an object");
  return json;
}

const Json* FindField(const Json& object, std::string_view name) {
  const auto it = object.find(std::string(name));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<const Json*> RequireObject(const Json& object, std::string_view name, std::string_view where) {
  const Json* field = FindField(object, name);
  if (field == nullptr || !field->is_object()) return WrongType(where, name, field, "an object");
  return field;
}

StatusOr<const Json*> RequireArray(const Json& object, std::string_view name, std::string_view where) {
  const Json* field = FindField(object, name);
  if (field == nullptr || !field->is_array()) return WrongType(where, name, field, "an array");
  return field;
}

StatusOr<std::string> RequireString(const Json& object, std::string_view name, std::string_view where) {
  const Json* field = FindField(object, name);
  if (field == nullptr || !field->is_string()) return WrongType(where, name, field, "a string");
  return field->get<std::string>();
}

StatusOr<std::string> StringOr(const Json& object, std::string_view name, std::string fallback,
                               std::string_view where) {
  if (FindField(object, name) == nullptr) return fallback;
  return RequireString(object, name, where);
}

StatusOr<bool> BoolOr(const Json& object, std::string_view name, bool fallback, std::string_view where) {
  const Json* field = FindField(object, name);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) return WrongType(where, name, field, "true or false");
  return field->get<bool>();
}

StatusOr<int64_t> IntegerOr(const Json& object, std::string_view name, int64_t fallback, std::string_view where) {
  const Json* field = FindField(object, name);
  if (field == nullptr) return fallback;
  if (!field->is_number_integer()) return WrongType(where, name, field, "an integer");
  return field->get<int64_t>();
}

StatusOr<int32_t> ReadTokenId(const Json& value, std::string_view where) {
  if (!value.is_number_integer()) return InvalidError(where, ": id is ", value.type_name(), ", expected an integer");
  const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId);
  const int64_t id = too_big ? -1 : value.get<int64_t>();
  if (id < 0 || id > kMaxTokenId) {
    return InvalidError(where, ": id ", value.dump(), " is not from 0 to ", kMaxTokenId);
  }
  return static_cast<int32_t>(id);
}

}  // namespace moe
