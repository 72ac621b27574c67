// Code points of UTF-8 text, with the character classes and case mappings that Python's str has.
// Malformed bytes never fail: each counts as one code point of no class.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_UNICODE_H_
#define MOE_LOADERS_CHAT_TEMPLATE_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moe::chat {

struct CodePoint {
  uint32_t value = 0;  // 0xDC80..0xDCFF for a malformed byte, as Python's surrogateescape has it.
  size_t bytes = 1;
};

// REQUIRES: pos < text.size().
CodePoint DecodeAt(std::string_view text, size_t pos);
// The code point that ends just before byte `end`. REQUIRES: 0 < end <= text.size().
CodePoint DecodeBefore(std::string_view text, size_t end);
void AppendUtf8(uint32_t code_point, std::string* out);

size_t CountCodePoints(std::string_view text);
// Byte offset of code point number `n`, text.size() when there are fewer.
size_t OffsetOf(std::string_view text, size_t n);

bool IsSpace(uint32_t c);
bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsDigit(uint32_t c);
bool IsNumeric(uint32_t c);
bool IsUpper(uint32_t c);
bool IsLower(uint32_t c);
bool IsTitle(uint32_t c);
bool IsPrintable(uint32_t c);

// Case mappings; the few that grow (ß, ligatures, İ) are mapped in full.
void AppendUpper(uint32_t c, std::string* out);
void AppendLower(uint32_t c, std::string* out);
void AppendTitle(uint32_t c, std::string* out);
// Lower case of a whole text, used for comparisons that ignore case. A sigma at the end of a word becomes ς.
std::string Lower(std::string_view text);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_UNICODE_H_
