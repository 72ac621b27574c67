#include "loaders/chat_template/lexer_literals.h"

#include <cctype>
#include <charconv>
#include <cstdlib>

#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

bool IsDigitOf(char c, int base) {
  if (base == 16) return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  return c >= '0' && c < '0' + base;
}

// The end of a run of digits, which single underscores may separate.
size_t SkipDigits(std::string_view text, size_t pos, int base) {
  while (pos < text.size()) {
    if (IsDigitOf(text[pos], base)) {
      ++pos;
    } else if (text[pos] == '_' && pos + 1 < text.size() && IsDigitOf(text[pos + 1], base)) {
      pos += 2;
    } else {
      break;
    }
  }
  return pos;
}

std::string WithoutUnderscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(c | 0x20);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

size_t LexNumber(std::string_view text, size_t pos, Token* token) {
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  int base = 10;
  size_t digits = pos;
  if (at(pos) == '0') {
    const char c = static_cast<char>(at(pos + 1) | 0x20);
    const int prefixed = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    const size_t first = at(pos + 2) == '_' ? pos + 3 : pos + 2;
    if (prefixed != 10 && first < text.size() && IsDigitOf(text[first], prefixed)) {
      base = prefixed;
      digits = first;
    }
  }
  size_t end = SkipDigits(text, digits, base);
  if (base == 10) {
    size_t float_end = end;
    if (at(end) == '.' && std::isdigit(static_cast<unsigned char>(at(end + 1)))) {
      float_end = SkipDigits(text, end + 1, 10);
    }
    if (at(float_end) == 'e' || at(float_end) == 'E') {
      const size_t exponent = float_end + (at(float_end + 1) == '+' || at(float_end + 1) == '-' ? 2 : 1);
      if (std::isdigit(static_cast<unsigned char>(at(exponent)))) float_end = SkipDigits(text, exponent, 10);
    }
    // "1.x" is an attribute of 1, and the 2 of "a.1.2" an index, not the fraction of a float.
    const bool after_dot = pos > 0 && text[pos - 1] == '.';
    if (float_end > end && !after_dot) {
      token->type = TokenType::kFloat;
      token->number = std::strtod(WithoutUnderscores(text.substr(pos, float_end - pos)).c_str(), nullptr);
      return float_end;
    }
    // Python has no numbers like 007: the zeros are a number of their own.
    if (at(pos) == '0') {
      end = pos + 1;
      while (at(end) == '0' || (at(end) == '_' && at(end + 1) == '0')) ++end;
    }
  }
  const std::string plain = WithoutUnderscores(text.substr(digits, end - digits));
  const auto [stop, error] = std::from_chars(plain.data(), plain.data() + plain.size(), token->integer, base);
  return error == std::errc() && stop == plain.data() + plain.size() ? end : 0;
}

std::string Unescape(std::string_view literal, std::string* out) {
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 >= literal.size()) {
      *out += literal[i];
      continue;
    }
    const char c = literal[++i];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      *out += kTo[simple];
    } else if (c == '\n') {
      // A line goes on.
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t used = 0;
      while (used < 3 && i + used < literal.size() && literal[i + used] >= '0' && literal[i + used] <= '7') {
        value = value * 8 + static_cast<uint32_t>(literal[i + used++] - '0');
      }
      AppendUtf8(value, out);
      i += used - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t value = 0;
      for (size_t k = 1; k <= count; ++k) {
        const int digit = i + k < literal.size() ? HexValue(literal[i + k]) : -1;
        if (digit < 0) return Cat("truncated \\", c, " escape");
        value = value * 16 + static_cast<uint32_t>(digit);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return Cat("illegal Unicode character in \\", c);
      AppendUtf8(value, out);
      i += count;
    } else if (c == 'N') {
      return "\\N escapes are not supported";
    } else {
      *out += {'\\', c};  // Python keeps what it does not know.
    }
  }
  return "";
}

}  // namespace moe::chat
