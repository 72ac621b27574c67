// The `pattern` field of Split and Replace: {"String": "…"} or {"Regex": "…"}.
#ifndef MOE_LOADERS_TOKENIZER_PATTERN_H_
#define MOE_LOADERS_TOKENIZER_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>

#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/regex.h"

namespace moe {

struct Pattern {
  std::unique_ptr<Regex> regex;
  std::string literal;  // Set when the file gave a plain string.
};

StatusOr<Pattern> ReadPattern(const Json& owner, std::string_view where);

// `text` with every match replaced by `content`, taken literally.
StatusOr<std::string> ReplaceAll(const Regex& regex, std::string_view text, std::string_view content);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_PATTERN_H_
