#include "server/json_field.h"

#include "loaders/json_text.h"

namespace moe {
namespace {

StatusOr<nlohmann::ordered_json> Parse(const std::string& text, const std::string& field) {
  JsonLimits limits;
  // The first parse refuses what is too deep, too long or ambiguous; the second keeps the order.
  if (!ParseJson(text, field, limits).ok()) {
    return InvalidError(field, ": is not valid JSON (at most ", limits.max_depth, " levels, no name twice)");
  }
  auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return InvalidError(field, ": is not valid JSON");
  return value;
}

}  // namespace

StatusOr<nlohmann::ordered_json> ParseJsonObject(const std::string& text, const std::string& field) {
  MOE_ASSIGN_OR_RETURN(nlohmann::ordered_json value, Parse(text, field));
  if (!value.is_object()) return InvalidError(field, ": is a JSON ", value.type_name(), ", expected an object");
  return value;
}

StatusOr<nlohmann::ordered_json> ParseJsonObjects(const std::string& text, const std::string& field) {
  MOE_ASSIGN_OR_RETURN(nlohmann::ordered_json value, Parse(text, field));
  if (!value.is_array()) return InvalidError(field, ": is a JSON ", value.type_name(), ", expected an array");
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_object()) continue;
    return InvalidError(field, "[", i, "]: is a JSON ", value[i].type_name(), ", expected an object");
  }
  return value;
}

}  // namespace moe
