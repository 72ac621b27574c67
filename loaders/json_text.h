// JSON of checkpoints: parsed without recursion or exceptions, with limits, duplicates refused.
#ifndef MOE_LOADERS_JSON_TEXT_H_
#define MOE_LOADERS_JSON_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "parallel/base/status.h"

namespace moe {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;
  // Python writes non-finite floats bare (Infinity, -Infinity, NaN), which is not JSON. When set, such a token outside
  // a string becomes {"__float__": "Infinity"}, the other spelling that checkpoints have for it.
  bool non_finite = false;
};

// `file` is the base name for messages. Broken syntax: CORRUPT; too deep, too long, or a duplicate name: INVALID.
StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& file, const JsonLimits& limits = {});

// A name or value out of a file, fit for a message: control characters escaped, cut after 200 bytes, in quotes.
std::string Quoted(std::string_view text);

// What a parse error says without nlohmann's prefixes, cut to a line.
std::string ShortParseError(const nlohmann::detail::exception& error);

}  // namespace moe

#endif  // MOE_LOADERS_JSON_TEXT_H_
