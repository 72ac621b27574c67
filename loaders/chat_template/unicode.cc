#include "loaders/chat_template/unicode.h"

#include <utf8proc.h>

#include <cstring>

namespace moe::chat {
namespace {

utf8proc_category_t Category(uint32_t c) {
  return c > 0x10FFFF ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Upper cases that are longer than one code point. utf8proc maps one to one only.
std::string_view LongUpper(uint32_t c) {
  switch (c) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0x1F0:
      return "J\xCC\x8C";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      return {};
  }
}

// How many bytes from `pos` on are ASCII, counting up to `limit`: most text is, and eight at a time go fast.
size_t AsciiRun(std::string_view text, size_t pos, size_t limit) {
  const size_t end = limit < text.size() - pos ? pos + limit : text.size();
  size_t at = pos;
  for (uint64_t word = 0; at + sizeof(word) <= end; at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < end && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at - pos;
}

bool IsCased(uint32_t c) {
  return IsUpper(c) || IsLower(c) || IsTitle(c);
}

// Characters that do not end a word for the final sigma rule (marks, apostrophes, format characters …).
bool IsCaseIgnorable(uint32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

bool SigmaIsFinal(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = begin; at > 0 && !cased_before;) {
    const CodePoint p = DecodeBefore(text, at);
    at -= p.bytes;
    if (IsCaseIgnorable(p.value)) continue;
    if (!IsCased(p.value)) return false;
    cased_before = true;
  }
  if (!cased_before) return false;
  for (size_t at = end; at < text.size();) {
    const CodePoint p = DecodeAt(text, at);
    at += p.bytes;
    if (IsCaseIgnorable(p.value)) continue;
    return !IsCased(p.value);
  }
  return true;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t pos) {
  const auto byte = static_cast<unsigned char>(text[pos]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t value = -1;
  const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos),
                                     static_cast<utf8proc_ssize_t>(text.size() - pos), &value);
  if (used <= 0) return {0xDC00u + byte, 1};
  return {static_cast<uint32_t>(value), static_cast<size_t>(used)};
}

CodePoint DecodeBefore(std::string_view text, size_t end) {
  for (size_t bytes = 1; bytes <= 4 && bytes <= end; ++bytes) {
    const auto byte = static_cast<unsigned char>(text[end - bytes]);
    if ((byte & 0xC0) == 0x80) continue;
    const CodePoint p = DecodeAt(text, end - bytes);
    if (p.bytes == bytes) return p;
    break;
  }
  return {0xDC00u + static_cast<unsigned char>(text[end - 1]), 1};
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c >= 0xDC80 && c <= 0xDCFF) {
    out->push_back(static_cast<char>(c - 0xDC00));
  } else {
    utf8proc_uint8_t buffer[4];
    const auto used = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
    out->append(reinterpret_cast<const char*>(buffer), used > 0 ? static_cast<size_t>(used) : 0);
  }
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t ascii = AsciiRun(text, pos, text.size());
    count += ascii;
    pos += ascii;
    if (pos < text.size()) {
      pos += DecodeAt(text, pos).bytes;
      ++count;
    }
  }
  return count;
}

size_t OffsetOf(std::string_view text, size_t n) {
  size_t pos = 0;
  while (n > 0 && pos < text.size()) {
    const size_t ascii = AsciiRun(text, pos, n);
    n -= ascii;
    pos += ascii;
    if (n > 0 && pos < text.size()) {
      pos += DecodeAt(text, pos).bytes;
      --n;
    }
  }
  return pos;
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAlpha(uint32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(uint32_t c) {
  // Superscripts, subscripts and circled digits are digits for Python, though not decimal.
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || c == 0x24EA;
}

bool IsNumeric(uint32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool IsUpper(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU;
}
bool IsLower(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool IsTitle(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void AppendUpper(uint32_t c, std::string* out) {
  if (const std::string_view full = LongUpper(c); !full.empty()) {
    out->append(full);
  } else if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
    AppendUtf8(c, out);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendLower(uint32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\xCC\x87");
  } else if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
    AppendUtf8(c, out);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(uint32_t c, std::string* out) {
  if (const std::string_view full = LongUpper(c); !full.empty()) {
    // Only the first letter of the long form is a capital: "Ss", "Ffi".
    std::string upper(full);
    const size_t head = DecodeAt(upper, 0).bytes;
    out->append(upper, 0, head);
    out->append(Lower(std::string_view(upper).substr(head)));
  } else if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
    AppendUtf8(c, out);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint p = DecodeAt(text, pos);
    if (p.value == 0x3A3) {
      AppendUtf8(SigmaIsFinal(text, pos, pos + p.bytes) ? 0x3C2 : 0x3C3, &out);
    } else {
      AppendLower(p.value, &out);
    }
    pos += p.bytes;
  }
  return out;
}

}  // namespace moe::chat
