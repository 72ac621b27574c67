// Reading fields of an untrusted JSON file. A `where` is the place for messages, "tokenizer.json: model.vocab".
#ifndef MOE_LOADERS_TOKENIZER_JSON_FIELDS_H_
#define MOE_LOADERS_TOKENIZER_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "parallel/base/status.h"

namespace moe {

using Json = nlohmann::json;

// CORRUPT when `text` is not JSON or ends early, INVALID when it nests deeper than any real file or is not an object.
StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view file);

// The field, or null when it is absent or JSON null. REQUIRES: `object` is an object.
const Json* FindField(const Json& object, std::string_view name);

// INVALID when the field is absent or of another type.
StatusOr<const Json*> RequireObject(const Json& object, std::string_view name, std::string_view where);
StatusOr<const Json*> RequireArray(const Json& object, std::string_view name, std::string_view where);
StatusOr<std::string> RequireString(const Json& object, std::string_view name, std::string_view where);
StatusOr<std::string> StringOr(const Json& object, std::string_view name, std::string fallback, std::string_view where);
StatusOr<bool> BoolOr(const Json& object, std::string_view name, bool fallback, std::string_view where);
StatusOr<int64_t> IntegerOr(const Json& object, std::string_view name, int64_t fallback, std::string_view where);

// A token id: an integer from 0 to kMaxTokenId. `where` names the value itself.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;  // Tables have an entry for each id up to the highest.
StatusOr<int32_t> ReadTokenId(const Json& value, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_JSON_FIELDS_H_
