// Python's format mini-language: [[fill]align][sign][#][0][width][,][.precision][type].
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "loaders/chat_template/format.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

constexpr int kMaxWidth = 100'000;
constexpr int kMaxPrecision = 1'000;

struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int width = 0;
  int precision = -1;
  char type = 0;
};

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

bool ParseNumber(std::string_view spec, size_t* pos, int limit, int* out) {
  int value = 0;
  while (*pos < spec.size() && spec[*pos] >= '0' && spec[*pos] <= '9') {
    value = value * 10 + (spec[(*pos)++] - '0');
    if (value > limit) return false;
  }
  *out = value;
  return true;
}

bool ParseSpec(std::string_view spec, Spec* out) {
  size_t pos = 0;
  if (!spec.empty()) {
    const size_t head = DecodeAt(spec, 0).bytes;
    if (head < spec.size() && IsAlign(spec[head])) {
      out->fill = spec.substr(0, head);
      out->align = spec[head];
      pos = head + 1;
    } else if (IsAlign(spec[0])) {
      out->align = spec[0];
      pos = 1;
    }
  }
  const auto peek = [&](char c) { return pos < spec.size() && spec[pos] == c; };
  if (peek('+') || peek('-') || peek(' ')) out->sign = spec[pos++];
  if (peek('#')) out->alternate = ++pos > 0;
  if (peek('0')) {
    if (out->align == 0) {
      out->fill = "0";
      out->align = '=';
    }
    ++pos;
  }
  if (!ParseNumber(spec, &pos, kMaxWidth, &out->width)) return false;
  if (peek(',') || peek('_')) out->grouping = spec[pos++];
  if (peek('.')) {
    ++pos;
    if (pos >= spec.size() || spec[pos] < '0' || spec[pos] > '9') return false;
    if (!ParseNumber(spec, &pos, kMaxPrecision, &out->precision)) return false;
  }
  if (pos < spec.size()) out->type = spec[pos++];
  return pos == spec.size();
}

std::string IntDigits(uint64_t magnitude, char type) {
  unsigned base = 10;
  if (type == 'b') base = 2;
  if (type == 'o') base = 8;
  if (type == 'x' || type == 'X') base = 16;
  const std::string_view alphabet = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    const auto digit = static_cast<size_t>(magnitude % base);
    digits.insert(digits.begin(), alphabet[digit]);
    magnitude /= base;
  } while (magnitude != 0);
  return digits;
}

void Group(char separator, std::string* digits) {
  const size_t end = std::min(digits->find_first_not_of("0123456789"), digits->size());
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits->insert(at, 1, separator);
  }
}

void AppendPadded(const Spec& spec, char align, const std::string& prefix, const std::string& body, bool trusted,
                  Text* out) {
  const int length = static_cast<int>(CountCodePoints(prefix) + CountCodePoints(body));
  const int padding = std::max(0, spec.width - length);
  const int before = align == '>' ? padding : align == '^' ? padding / 2 : 0;
  std::string line;
  for (int i = 0; i < before; ++i) line += spec.fill;
  line += prefix;
  for (int i = 0; align == '=' && i < padding; ++i) line += spec.fill;
  line += body;
  for (int i = before; align != '=' && i < padding; ++i) line += spec.fill;
  out->Append(line, trusted);
}

}  // namespace

std::string FormatFloat(double value, char type, int precision, bool alternate) {
  if (std::isnan(value)) return type == 'F' || type == 'E' || type == 'G' ? "NAN" : "nan";
  const std::string minus = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return minus + (type == 'F' || type == 'E' || type == 'G' ? "INF" : "inf");
  if (type == '%') return FormatFloat(value * 100, 'f', precision, alternate) + "%";
  if ((type == 'g' || type == 'G') && precision == 0) precision = 1;
  const char form[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  std::string buffer(static_cast<size_t>(std::snprintf(nullptr, 0, form, precision, value)) + 1, '\0');
  std::snprintf(buffer.data(), buffer.size(), form, precision, value);
  buffer.pop_back();
  return buffer;
}

void AppendFormatted(Runtime& rt, const Value& v, std::string_view text, Text* out) {
  if (text.empty()) return AppendStr(rt, v, out);
  Spec spec;
  if (!ParseSpec(text, &spec)) {
    rt.Fail("Invalid format specifier '", text.substr(0, 100), "'");
    return;
  }
  if (v.IsString()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=') {
      rt.Fail("Unknown format code '", std::string(1, spec.type), "' for object of type 'str'");
      return;
    }
    std::string_view body = v.text();
    if (spec.precision >= 0) body = body.substr(0, OffsetOf(body, static_cast<size_t>(spec.precision)));
    if (!rt.Process(4 * body.size())) return;
    return AppendPadded(spec, spec.align == 0 ? '<' : spec.align, "", std::string(body), v.trusted(), out);
  }
  if (!v.IsNumber()) {
    rt.Fail("unsupported format string passed to ", TypeName(v), ".__format__");
    return;
  }
  std::string body;
  const bool as_float = v.kind() == Kind::kFloat ||
                        (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  if (as_float) {
    if (spec.type == 0 && spec.precision < 0) {
      body = FloatRepr(v.number());
    } else {
      const char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
      if (std::string_view("eEfFgG%").find(type) == std::string_view::npos) {
        rt.Fail("Unknown format code '", std::string(1, type), "' for object of type 'float'");
        return;
      }
      body = FormatFloat(v.number(), type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    }
  } else {
    const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
    if (std::string_view("bcdoxX").find(type) == std::string_view::npos || spec.precision >= 0) {
      rt.Fail("Unknown format code '", std::string(1, type), "' for object of type 'int'");
      return;
    }
    const int64_t n = v.integer();
    if (type == 'c') {
      if (n >= 0 && n <= 0x10FFFF) AppendUtf8(static_cast<uint32_t>(n), &body);
    } else {
      body = IntDigits(n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n), type);
      if (spec.alternate && type != 'd') body = std::string("0") + type + body;
      if (n < 0) body = "-" + body;
    }
  }
  std::string prefix;
  if (!body.empty() && body[0] == '-') {
    prefix = "-";
    body.erase(0, 1);
  } else if (spec.sign != '-') {
    prefix = std::string(1, spec.sign);
  }
  if (spec.grouping != 0) Group(spec.grouping, &body);
  AppendPadded(spec, spec.align == 0 ? '>' : spec.align, prefix, body, v.trusted(), out);
}

}  // namespace moe::chat
