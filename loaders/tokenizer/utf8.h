// UTF-8 reading and writing. Invalid bytes follow the Unicode "maximal subpart" practice, which is also what the
// reference decoder does: every maximal ill-formed run becomes one U+FFFD.
#ifndef MOE_LOADERS_TOKENIZER_UTF8_H_
#define MOE_LOADERS_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moe {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What stands at the start of a byte string.
struct Utf8Unit {
  enum Kind { kCharacter, kIncomplete, kInvalid };
  Kind kind;
  size_t length_bytes;  // Of the character, of the cut character, or of the ill-formed run. At least 1.
};

// REQUIRES: !bytes.empty(). kIncomplete: all of `bytes` is the beginning of a character whose rest is missing.
Utf8Unit ReadUtf8Unit(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);

// Reads the character at *pos and moves *pos behind it. REQUIRES: `text` is valid, *pos is on a boundary before its
// end.
char32_t NextCodePoint(std::string_view text, size_t* pos);

// The character that ends at `pos`. REQUIRES: `text` is valid, pos is a boundary greater than 0.
char32_t PreviousCodePoint(std::string_view text, size_t pos);

void AppendUtf8(char32_t code_point, std::string* out);

// Appends `bytes` with ill-formed runs replaced. With `final` false a cut character at the end is left alone.
// Returns how many bytes were consumed (all of them when `final`).
size_t AppendLossyUtf8(std::string_view bytes, bool final, std::string* out);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_UTF8_H_
