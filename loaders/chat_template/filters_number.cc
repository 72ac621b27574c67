// Filters on numbers, and those that boil a sequence down to one value.
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attribute_path.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/strings.h"

namespace moe::chat {
namespace {

Value DoAbs(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "abs", args, {});
  if (self.IsUndefined()) return rt.FailUndefined(self);
  if (!self.IsNumber()) return rt.Fail("bad operand type for abs(): '", TypeName(self), "'");
  if (self.kind() == Kind::kFloat) return Value::Float(std::fabs(self.number()), self.trusted());
  return self.integer() < 0 ? Negate(rt, self) : Value::Int(self.integer(), self.trusted());
}

// Digits without the underscores Python allows between them; nothing if one is elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_' || !std::isxdigit(text[i - 1])) {
      return std::nullopt;
    }
  }
  return out;
}

// Python's int(text, base).
std::optional<int64_t> ParseInt(std::string_view text, int64_t base) {
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    const int64_t prefixed = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  const auto digits = WithoutUnderscores(text);
  if (base < 2 || base > 36 || !digits.has_value() || digits->empty()) return std::nullopt;
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits->data(), digits->data() + digits->size(), magnitude, static_cast<int>(base));
  if (error != std::errc() || end != digits->data() + digits->size()) return std::nullopt;
  if (magnitude > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

// Python's float(text), for text without white space around it.
std::optional<double> ParseFloat(std::string_view text) {
  const auto digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  // strtod would also take hexadecimal numbers and nan(…).
  for (size_t i = 0; i < digits->size(); ++i) {
    const char c = (*digits)[i];
    if (c == 'x' || c == 'X' || c == '(' || std::isspace(static_cast<unsigned char>(c))) return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return value;
}

std::optional<double> ToDouble(Runtime& rt, const Value& v) {
  if (v.IsNumber()) return v.number();
  if (v.kind() == Kind::kBigInt) return static_cast<double>(v.big_integer());
  if (v.IsUndefined()) rt.FailUndefined(v);
  if (!v.IsString() || !rt.Process(v.text().size())) return std::nullopt;
  return ParseFloat(Strip(rt, v, nullptr, true, true).text());
}

Value DoInt(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "int", args, {"default", "base"});
  Value fallback = a.ValueOr(0, Value::Int(0));
  if (self.IsInt() || self.kind() == Kind::kBigInt) {
    return self.IsInt() ? Value::Int(self.integer(), self.trusted()) : self;
  }
  if (self.IsString() && rt.Process(self.text().size())) {
    const auto n = ParseInt(Strip(rt, self, nullptr, true, true).text(), a.Int(1, 10));
    if (n.has_value()) return Value::Int(*n, self.trusted());
  }
  const auto number = ToDouble(rt, self);
  if (!number.has_value() || !std::isfinite(*number)) return fallback;
  if (std::fabs(*number) >= 9223372036854775808.0) return rt.Fail("integer overflow: integers have 64 bits here");
  return Value::Int(static_cast<int64_t>(*number), self.trusted());
}

Value DoFloat(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "float", args, {"default"});
  const auto number = ToDouble(rt, self);
  return number.has_value() ? Value::Float(*number, self.trusted()) : a.ValueOr(0, Value::Float(0));
}

// Python's round(): the decimal nearest to the exact value, ties to even.
double RoundTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[800];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Value DoRound(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "round", args, {"precision", "method"});
  const int64_t precision = a.Int(0, 0);
  const std::string_view method = a.Text(1, "common");
  if (self.IsUndefined()) return rt.FailUndefined(self);
  if (method != "common" && method != "ceil" && method != "floor") {
    return rt.Fail("method must be common, ceil or floor");
  }
  if (!self.IsNumber()) return rt.Fail("type ", TypeName(self), " doesn't define __round__ method");
  if (method == "common") {
    if (self.IsInt() && precision >= 0) return Value::Int(self.integer(), self.trusted());
    const double rounded = RoundTo(self.number(), precision);
    return self.IsInt() ? Value::Int(static_cast<int64_t>(rounded), self.trusted())
                        : Value::Float(rounded, self.trusted());
  }
  if (precision > 300 || precision < -300) return rt.Fail("round(): precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.number() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale, self.trusted());
}

Value DoLength(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "length", args, {});
  return Value::Int(Length(rt, self));
}

Value DoSum(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "sum", args, {"attribute", "start"});
  const AttributePath path(rt, a.ValueOr(0, Value::None()));
  Value total = a.ValueOr(1, Value::Int(0));
  if (total.IsString()) return rt.Fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Iterate(rt, self)) {
    total = Calculate(rt, BinaryOp::kAdd, total, path.Get(rt, item));
    if (!rt.ok()) break;
  }
  return total;
}

Value Extreme(Runtime& rt, const Value& self, Args& args, std::string_view name, bool largest) {
  const Arguments a(rt, name, args, {"case_sensitive", "attribute"});
  const AttributePath path(rt, a.ValueOr(1, Value::None()));
  const bool case_sensitive = a.Bool(0, false);
  const std::vector<Value> items = Iterate(rt, self);
  if (items.empty()) return rt.UndefinedBecause("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    const Value key = path.Get(rt, item);
    return case_sensitive ? key : IgnoreCase(rt, key);
  };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size() && rt.ok(); ++i) {
    Value key = key_of(items[i]);
    const int order = Order(rt, key, best_key, largest ? ">" : "<");
    if (largest ? order > 0 : order < 0) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value DoMax(Runtime& rt, const Value& self, Args& args) {
  return Extreme(rt, self, args, "max", true);
}
Value DoMin(Runtime& rt, const Value& self, Args& args) {
  return Extreme(rt, self, args, "min", false);
}

constexpr Builtin kFilters[] = {
    {"abs", DoAbs}, {"count", DoLength}, {"float", DoFloat}, {"int", DoInt}, {"length", DoLength},
    {"max", DoMax}, {"min", DoMin},      {"round", DoRound}, {"sum", DoSum},
};

}  // namespace

NativeFunction FindNumberFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace moe::chat
