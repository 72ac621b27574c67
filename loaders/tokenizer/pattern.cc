#include "loaders/tokenizer/pattern.h"

#include <utility>
#include <vector>

namespace moe {

StatusOr<Pattern> ReadPattern(const Json& owner, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* field, RequireObject(owner, "pattern", where));
  const std::string field_where = Cat(where, ".pattern");
  Pattern pattern;
  if (FindField(*field, "Regex") != nullptr) {
    MOE_ASSIGN_OR_RETURN(const std::string text, RequireString(*field, "Regex", field_where));
    auto regex = Regex::Compile(text);
    if (!regex.ok()) return Annotate(regex.status(), Cat(field_where, ".Regex: "));
    pattern.regex = std::move(regex).value();
  } else {
    MOE_ASSIGN_OR_RETURN(pattern.literal, RequireString(*field, "String", field_where));
    auto regex = Regex::CompileLiteral(pattern.literal);
    if (!regex.ok()) return Annotate(regex.status(), Cat(field_where, ".String: "));
    pattern.regex = std::move(regex).value();
  }
  return pattern;
}

namespace {

// Known tokenizers replace a character by at most three bytes; these bounds leave room for odd ones.
constexpr size_t kMaxGrowth = 16;
constexpr size_t kFreeGrowthBytes = size_t{64} << 10;

}  // namespace

StatusOr<std::string> ReplaceAll(const Regex& regex, std::string_view text, std::string_view content) {
  if (text.empty()) return std::string();
  std::vector<TextRange> matches;
  MOE_RETURN_IF_ERROR(regex.FindAll(text, &matches));
  // A few Replace steps in a row could otherwise turn ten characters into gigabytes.
  if (matches.size() * content.size() > kMaxGrowth * text.size() + kFreeGrowthBytes) {
    return absl::ResourceExhaustedError(
        Cat("the tokenizer's Replace would make ", matches.size() * content.size(), " bytes of ", text.size()));
  }
  std::string result;
  result.reserve(text.size() + matches.size() * content.size());
  size_t copied = 0;
  for (const TextRange& match : matches) {
    result.append(text.substr(copied, match.begin - copied));
    result.append(content);
    copied = match.end;
  }
  result.append(text.substr(copied));
  return result;
}

}  // namespace moe
