// Calculate and Negate: + - * / // % ** as Python has them, on 64-bit integers.
#include <cmath>

#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {
namespace {

constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%", "**"};

Value Overflow(Runtime& rt) {
  return rt.Fail("integer overflow: integers have 64 bits here");
}

Value Power(Runtime& rt, int64_t base, int64_t exponent, bool trusted) {
  int64_t result = 1;
  // Squaring: at most 64 rounds, unless the base stays within -1..1, where it does not matter.
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow(rt);
    exponent >>= 1;
    if (exponent == 0) return Value::Int(result, trusted);
    if (__builtin_mul_overflow(base, base, &base)) return Overflow(rt);
  }
}

Value CalculateInts(Runtime& rt, BinaryOp op, int64_t a, int64_t b, bool trusted) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return __builtin_add_overflow(a, b, &result) ? Overflow(rt) : Value::Int(result, trusted);
    case BinaryOp::kSub:
      return __builtin_sub_overflow(a, b, &result) ? Overflow(rt) : Value::Int(result, trusted);
    case BinaryOp::kMul:
      return __builtin_mul_overflow(a, b, &result) ? Overflow(rt) : Value::Int(result, trusted);
    case BinaryOp::kDiv:
      if (b == 0) return rt.Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b), trusted);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) return rt.Fail("integer division or modulo by zero");
      if (b == -1) {  // INT64_MIN // -1 would trap.
        if (op == BinaryOp::kMod) return Value::Int(0, trusted);
        return __builtin_sub_overflow(int64_t{0}, a, &result) ? Overflow(rt) : Value::Int(result, trusted);
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {  // Python rounds down, C++ towards zero.
        --quotient;
        rest += b;
      }
      return Value::Int(op == BinaryOp::kMod ? rest : quotient, trusted);
    }
    case BinaryOp::kPow:
      if (b >= 0) return Power(rt, a, b, trusted);
      if (a == 0) return rt.Fail("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)), trusted);
  }
  return Value();
}

Value CalculateFloats(Runtime& rt, BinaryOp op, double a, double b, bool trusted) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b, trusted);
    case BinaryOp::kSub:
      return Value::Float(a - b, trusted);
    case BinaryOp::kMul:
      return Value::Float(a * b, trusted);
    case BinaryOp::kDiv:
      if (b == 0) return rt.Fail("float division by zero");
      return Value::Float(a / b, trusted);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) return rt.Fail(op == BinaryOp::kMod ? "float modulo by zero" : "float floor division by zero");
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      }
      if (rest == 0) rest = std::copysign(0.0, b);
      return Value::Float(op == BinaryOp::kMod ? rest : std::floor(quotient + 0.5), trusted);
    }
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) return rt.Fail("0.0 cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) return rt.Fail("the result is a complex number");
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) return rt.Fail("Numerical result out of range");
      return Value::Float(result, trusted);
    }
  }
  return Value();
}

Value Repeat(Runtime& rt, const Value& sequence, int64_t times) {
  const auto count = static_cast<size_t>(times < 0 ? 0 : times);
  if (sequence.IsString()) {
    Text out(rt);
    if (sequence.string().runs.empty()) {
      out.AppendRepeated(sequence.text(), count, sequence.trusted());
    } else {
      for (size_t i = 0; i < count && rt.Step(); ++i) out.Append(sequence.string());
    }
    return out.Finish();
  }
  const auto& items = sequence.list().items;
  if (!items.empty() && count > static_cast<size_t>(rt.limits().live_bytes) / sizeof(Value) / items.size()) {
    return rt.Fail("the template needs more than ", rt.limits().live_bytes, " bytes (limit on memory)");
  }
  if (!rt.Step(static_cast<int64_t>(items.size() * (items.empty() ? 0 : count)) / 8)) return Value();
  std::vector<Value> repeated;
  for (size_t i = 0; i < count && !items.empty(); ++i) repeated.insert(repeated.end(), items.begin(), items.end());
  return rt.NewList(std::move(repeated), sequence.list().kind, sequence.trusted());
}

bool IsPlainList(const Value& v) {
  return v.IsList() && (v.list().kind == ListKind::kList || v.list().kind == ListKind::kTuple);
}

}  // namespace

Value Calculate(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (!rt.Step()) return Value();
  if (op == BinaryOp::kMod && a.IsString()) return FormatPercent(rt, a, b);
  if (a.IsUndefined()) return rt.FailUndefined(a);
  if (b.IsUndefined()) return rt.FailUndefined(b);
  const bool trusted = a.trusted() && b.trusted();
  if (a.IsInt() && b.IsInt()) return CalculateInts(rt, op, a.integer(), b.integer(), trusted);
  if (a.IsNumber() && b.IsNumber()) return CalculateFloats(rt, op, a.number(), b.number(), trusted);
  if (a.kind() == Kind::kBigInt || b.kind() == Kind::kBigInt) {
    if ((a.IsNumber() || a.kind() == Kind::kBigInt) && (b.IsNumber() || b.kind() == Kind::kBigInt)) return Overflow(rt);
  }
  if (op == BinaryOp::kAdd && a.IsString() && b.IsString()) {
    Text out(rt);
    out.Append(a.string());
    out.Append(b.string());
    return out.Finish();
  }
  if (op == BinaryOp::kAdd && IsPlainList(a) && IsPlainList(b) && a.list().kind == b.list().kind) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return rt.NewList(std::move(items), a.list().kind, trusted);
  }
  if (op == BinaryOp::kMul) {
    if ((a.IsString() || IsPlainList(a)) && b.IsInt()) return Repeat(rt, a, b.integer());
    if ((b.IsString() || IsPlainList(b)) && a.IsInt()) return Repeat(rt, b, a.integer());
  }
  if (op == BinaryOp::kAdd && a.IsString()) {
    return rt.Fail("can only concatenate str (not \"", TypeName(b), "\") to str");
  }
  return rt.Fail("unsupported operand type(s) for ", kNames[static_cast<int>(op)], ": '", TypeName(a), "' and '",
                 TypeName(b), "'");
}

Value Negate(Runtime& rt, const Value& v) {
  if (v.IsUndefined()) return rt.FailUndefined(v);
  if (v.kind() == Kind::kFloat) return Value::Float(-v.number(), v.trusted());
  if (v.IsInt()) return CalculateInts(rt, BinaryOp::kSub, 0, v.integer(), v.trusted());
  return rt.Fail("bad operand type for unary -: '", TypeName(v), "'");
}

}  // namespace moe::chat
