#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

bool InRange(unsigned char byte, unsigned char low, unsigned char high) {
  return byte >= low && byte <= high;
}

// The second byte has a narrower range after some first bytes: no overlong forms, no surrogates, nothing past U+10FFFF.
bool SecondByteFits(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0:
      return InRange(second, 0xA0, 0xBF);
    case 0xED:
      return InRange(second, 0x80, 0x9F);
    case 0xF0:
      return InRange(second, 0x90, 0xBF);
    case 0xF4:
      return InRange(second, 0x80, 0x8F);
    default:
      return InRange(second, 0x80, 0xBF);
  }
}

size_t LengthFromFirstByte(unsigned char first) {
  if (first < 0x80) return 1;
  if (InRange(first, 0xC2, 0xDF)) return 2;
  if (InRange(first, 0xE0, 0xEF)) return 3;
  if (InRange(first, 0xF0, 0xF4)) return 4;
  return 0;
}

}  // namespace

Utf8Unit ReadUtf8Unit(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const size_t length = LengthFromFirstByte(first);
  if (length == 0) return {Utf8Unit::kInvalid, 1};
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Unit::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool fits = i == 1 ? SecondByteFits(first, byte) : InRange(byte, 0x80, 0xBF);
    if (!fits) return {Utf8Unit::kInvalid, i};
  }
  return {Utf8Unit::kCharacter, length};
}

bool IsValidUtf8(std::string_view bytes) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    if (static_cast<unsigned char>(bytes[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Unit unit = ReadUtf8Unit(bytes.substr(pos));
    if (unit.kind != Utf8Unit::kCharacter) return false;
    pos += unit.length_bytes;
  }
  return true;
}

char32_t NextCodePoint(std::string_view text, size_t* pos) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[*pos + i])); };
  const char32_t first = byte(0);
  char32_t code_point;
  size_t length;
  if (first < 0x80) {
    code_point = first;
    length = 1;
  } else if (first < 0xE0) {
    code_point = (first & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  } else if (first < 0xF0) {
    code_point = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else {
    code_point = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  }
  *pos += length;
  return code_point;
}

char32_t PreviousCodePoint(std::string_view text, size_t pos) {
  do {
    --pos;
  } while ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return NextCodePoint(text, &pos);
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

size_t AppendLossyUtf8(std::string_view bytes, bool final, std::string* out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Utf8Unit unit = ReadUtf8Unit(bytes.substr(pos));
    if (unit.kind == Utf8Unit::kCharacter) {
      out->append(bytes.substr(pos, unit.length_bytes));
    } else if (unit.kind == Utf8Unit::kIncomplete && !final) {
      break;
    } else {
      out->append(kReplacementCharacter);
    }
    pos += unit.length_bytes;
  }
  return pos;
}

}  // namespace moe
