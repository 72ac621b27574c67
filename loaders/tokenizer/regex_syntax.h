// tokenizer.json writes patterns for Oniguruma; we match with PCRE2. The two agree on most of what tokenizers use. This
// rewrites what means something else in PCRE2 (\s, \w, \h, \v, script names, `&&` in classes, `{n,m}+`) and refuses
// what has no counterpart, so that a pattern is never silently matched in another meaning.
#ifndef MOE_LOADERS_TOKENIZER_REGEX_SYNTAX_H_
#define MOE_LOADERS_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "parallel/base/status.h"

namespace moe {

// UNSUPPORTED names the construct; the caller adds the place. REQUIRES: `pattern` is valid UTF-8.
StatusOr<std::string> TranslateRegex(std::string_view pattern);

// A pattern that matches `text` itself.
std::string EscapeRegex(std::string_view text);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_REGEX_SYNTAX_H_
