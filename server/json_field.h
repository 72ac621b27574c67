// JSON inside a request's string fields.
#ifndef MOE_SERVER_JSON_FIELD_H_
#define MOE_SERVER_JSON_FIELD_H_

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/base/status.h"

namespace moe {

// Keeps the order of names, which templates show. INVALID_ARGUMENT, naming `field` and nothing of its content.
StatusOr<nlohmann::ordered_json> ParseJsonObject(const std::string& text, const std::string& field);
StatusOr<nlohmann::ordered_json> ParseJsonObjects(const std::string& text, const std::string& field);  // an array

}  // namespace moe

#endif  // MOE_SERVER_JSON_FIELD_H_
