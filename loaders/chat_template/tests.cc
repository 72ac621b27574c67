// The tests of the template language: what may follow `is`, and the names that select() and its like take.
#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/strings.h"

namespace moe::chat {
namespace {

using Predicate = bool (*)(const Value& value);

template <Predicate kPredicate>
Value Plain(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "test", args, {});
  return Value::Bool(kPredicate(self));
}

template <CompareOp kOp>
Value Comparison(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "test", args, {"other"}, 1);
  return Value::Bool(rt.ok() && Compare(rt, kOp, self, a[0]));
}

bool IsDefined(const Value& v) {
  return !v.IsUndefined();
}
bool IsUndefined(const Value& v) {
  return v.IsUndefined();
}
bool IsNone(const Value& v) {
  return v.IsNone();
}
bool IsBoolean(const Value& v) {
  return v.IsBool();
}
bool IsTrue(const Value& v) {
  return v.IsBool() && v.boolean();
}
bool IsFalse(const Value& v) {
  return v.IsBool() && !v.boolean();
}
bool IsInteger(const Value& v) {
  return v.kind() == Kind::kInt || v.kind() == Kind::kBigInt;
}
bool IsFloat(const Value& v) {
  return v.kind() == Kind::kFloat;
}
bool IsNumber(const Value& v) {
  return v.IsNumber() || v.kind() == Kind::kBigInt;
}
bool IsString(const Value& v) {
  return v.IsString();
}
bool IsMapping(const Value& v) {
  return v.IsDict();
}
bool IsIterable(const Value& v) {
  return v.IsUndefined() || v.IsString() || v.IsList() || v.IsDict();
}
bool IsSequence(const Value& v) {
  const bool lazy = v.IsList() && (v.list().kind == ListKind::kView || v.list().kind == ListKind::kGenerator);
  return IsIterable(v) && !lazy;
}
bool IsCallable(const Value& v) {
  return v.kind() == Kind::kObject && v.object().callable();
}
bool IsEscaped(const Value&) {
  return false;
}
bool IsFilter(const Value& v) {
  return v.IsString() && FindFilter(v.text()) != nullptr;
}
bool IsTest(const Value& v) {
  return v.IsString() && FindTest(v.text()) != nullptr;
}

Value Remainder(Runtime& rt, const Value& self, const Value& divisor) {
  return Calculate(rt, BinaryOp::kMod, self, divisor);
}

Value DoOdd(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "odd", args, {});
  return Value::Bool(Equal(rt, Remainder(rt, self, Value::Int(2)), Value::Int(1)));
}

Value DoEven(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "even", args, {});
  return Value::Bool(Equal(rt, Remainder(rt, self, Value::Int(2)), Value::Int(0)));
}

Value DoDivisibleBy(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "divisibleby", args, {"num"}, 1);
  return Value::Bool(rt.ok() && Equal(rt, Remainder(rt, self, a[0]), Value::Int(0)));
}

// Python's `is`: the same object. Scalars have no identity here, equal ones of one type count as the same.
Value DoSameAs(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "sameas", args, {"other"}, 1);
  if (self.kind() != a[0].kind()) return Value::Bool(false);
  if (self.IsList()) return Value::Bool(&self.list() == &a[0].list());
  if (self.IsDict()) return Value::Bool(&self.dict() == &a[0].dict());
  return Value::Bool(Equal(rt, self, a[0]));
}

Value CaseTest(Runtime& rt, const Value& self, std::string_view method) {
  Args none;
  return FindStringMethod(method)(rt, ToStr(rt, self), none);
}

Value DoLower(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "lower", args, {});
  return CaseTest(rt, self, "islower");
}

Value DoUpper(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "upper", args, {});
  return CaseTest(rt, self, "isupper");
}

constexpr Builtin kTests[] = {
    {"!=", Comparison<CompareOp::kNe>},
    {"<", Comparison<CompareOp::kLt>},
    {"<=", Comparison<CompareOp::kLe>},
    {"==", Comparison<CompareOp::kEq>},
    {">", Comparison<CompareOp::kGt>},
    {">=", Comparison<CompareOp::kGe>},
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", DoDivisibleBy},
    {"eq", Comparison<CompareOp::kEq>},
    {"equalto", Comparison<CompareOp::kEq>},
    {"escaped", Plain<IsEscaped>},
    {"even", DoEven},
    {"false", Plain<IsFalse>},
    {"filter", Plain<IsFilter>},
    {"float", Plain<IsFloat>},
    {"ge", Comparison<CompareOp::kGe>},
    {"greaterthan", Comparison<CompareOp::kGt>},
    {"gt", Comparison<CompareOp::kGt>},
    {"in", Comparison<CompareOp::kIn>},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"le", Comparison<CompareOp::kLe>},
    {"lessthan", Comparison<CompareOp::kLt>},
    {"lower", DoLower},
    {"lt", Comparison<CompareOp::kLt>},
    {"mapping", Plain<IsMapping>},
    {"ne", Comparison<CompareOp::kNe>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", DoOdd},
    {"sameas", DoSameAs},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", Plain<IsTest>},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", DoUpper},
};

}  // namespace

NativeFunction FindTest(std::string_view name) {
  return FindIn(kTests, name);
}

}  // namespace moe::chat
