// A compiled pattern of a tokenizer.json. Matching is bounded in steps, memory and stack whatever the text.
#ifndef MOE_LOADERS_TOKENIZER_REGEX_H_
#define MOE_LOADERS_TOKENIZER_REGEX_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/text_range.h"
#include "parallel/base/status.h"

namespace moe {

class Regex {
 public:
  // `pattern` is in Oniguruma's syntax, see regex_syntax.h. UNSUPPORTED when it does not compile.
  static StatusOr<std::unique_ptr<Regex>> Compile(std::string_view pattern);
  // Matches `text` itself.
  static StatusOr<std::unique_ptr<Regex>> CompileLiteral(std::string_view text);
  ~Regex();

  // Puts all matches in `matches`, left to right, not overlapping. An empty match directly behind the previous match
  // does not count. RESOURCE_EXHAUSTED when the text makes the pattern backtrack beyond the limits.
  // REQUIRES: `text` is valid UTF-8. Thread-safe.
  Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;

 private:
  struct Code;  // What PCRE2 keeps for a pattern.

  explicit Regex(std::unique_ptr<Code> code);

  // Set for patterns that are a plain string: found without PCRE2.
  std::string literal_;
  std::unique_ptr<Code> code_;
  // For `\s+$`, which takes quadratic time where much white space is followed by something else.
  bool trailing_space_ = false;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_REGEX_H_
