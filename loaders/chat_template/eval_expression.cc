// Expressions.
#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/evaluator.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {

Value Evaluator::Eval(const Expr& expr) {
  if (!rt_.Step()) return Value();
  if (depth_ >= rt_.limits().eval_depth) {
    return rt_.Fail("the template is nested deeper than ", rt_.limits().eval_depth, " levels (limit on depth)");
  }
  rt_.line = expr.line;
  ++depth_;
  Value value = EvalNode(expr);
  --depth_;
  return value;
}

Value Evaluator::EvalNode(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return static_cast<const ConstExpr&>(expr).value;
    case ExprKind::kName:
      return EvalName(static_cast<const NameExpr&>(expr));
    case ExprKind::kTuple:
      return rt_.NewTuple(EvalItems(static_cast<const ItemsExpr&>(expr).items));
    case ExprKind::kList:
      return rt_.NewList(EvalItems(static_cast<const ItemsExpr&>(expr).items));
    case ExprKind::kDict:
      return EvalDict(static_cast<const ItemsExpr&>(expr));
    case ExprKind::kNot:
    case ExprKind::kNegative:
    case ExprKind::kPositive:
      return EvalUnary(static_cast<const UnaryExpr&>(expr));
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kBinary:
      return EvalBinary(static_cast<const BinaryExpr&>(expr));
    case ExprKind::kConcat: {
      Text out(rt_);
      for (const ExprPtr& item : static_cast<const ItemsExpr&>(expr).items) AppendStr(rt_, Eval(*item), &out);
      return out.Finish();
    }
    case ExprKind::kCompare:
      return EvalCompare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kCondition: {
      const auto& condition = static_cast<const ConditionExpr&>(expr);
      if (Truth(Eval(*condition.test))) return Eval(*condition.then);
      if (condition.otherwise != nullptr) return Eval(*condition.otherwise);
      return rt_.UndefinedBecause("the inline if-expression evaluated to false and no else section was defined.");
    }
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      const Value object = Eval(*attribute.object);
      return rt_.ok() ? GetAttribute(rt_, object, attribute.name) : Value();
    }
    case ExprKind::kItem:
      return EvalItem(static_cast<const ItemExpr&>(expr));
    case ExprKind::kSlice:
      return rt_.Fail("a slice cannot stand here");
    case ExprKind::kCall:
      return EvalCall(static_cast<const CallExpr&>(expr), nullptr);
    case ExprKind::kFilter:
    case ExprKind::kTest: {
      const auto& builtin = static_cast<const BuiltinExpr&>(expr);
      const Value input = Eval(*builtin.input);
      return ApplyBuiltin(builtin, input);
    }
  }
  return Value();
}

Value Evaluator::EvalName(const NameExpr& expr) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->Find(expr.symbol)) return *found;
  }
  const std::string& name = syntax_.symbols.names[static_cast<size_t>(expr.symbol)];
  Value global = FindGlobal(rt_, name);
  if (global.IsUndefined()) return rt_.UndefinedName(name);
  globals_->Set(expr.symbol, global);
  return global;
}

Value Evaluator::EvalUnary(const UnaryExpr& expr) {
  const Value operand = Eval(*expr.operand);
  if (!rt_.ok()) return Value();
  if (expr.kind == ExprKind::kNot) return Value::Bool(!Truth(operand));
  if (expr.kind == ExprKind::kNegative) return Negate(rt_, operand);
  if (operand.IsUndefined()) return rt_.FailUndefined(operand);
  if (!operand.IsNumber()) return rt_.Fail("bad operand type for unary +: '", TypeName(operand), "'");
  return operand.IsBool() ? Value::Int(operand.integer(), operand.trusted()) : operand;
}

Value Evaluator::EvalBinary(const BinaryExpr& expr) {
  Value left = Eval(*expr.left);
  if (!rt_.ok()) return Value();
  if (expr.kind == ExprKind::kAnd) return Truth(left) ? Eval(*expr.right) : left;
  if (expr.kind == ExprKind::kOr) return Truth(left) ? left : Eval(*expr.right);
  const Value right = Eval(*expr.right);
  rt_.line = expr.line;
  return rt_.ok() ? Calculate(rt_, expr.op, left, right) : Value();
}

Value Evaluator::EvalCompare(const CompareExpr& expr) {
  Value left = Eval(*expr.first);
  for (const auto& [op, operand] : expr.rest) {
    Value right = Eval(*operand);
    rt_.line = expr.line;
    if (!rt_.ok() || !Compare(rt_, op, left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Evaluator::EvalDict(const ItemsExpr& expr) {
  DictObject* dict = nullptr;
  Value out = rt_.NewDict(&dict);
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    const Value key = Eval(*expr.items[i]);
    Value value = Eval(*expr.items[i + 1]);
    if (!rt_.ok() || !CheckHashable(rt_, key)) break;
    rt_.Put(dict, key, std::move(value));
  }
  return out;
}

Value Evaluator::EvalItem(const ItemExpr& expr) {
  const Value object = Eval(*expr.object);
  if (!rt_.ok()) return Value();
  if (expr.index->kind != ExprKind::kSlice) {
    const Value index = Eval(*expr.index);
    return rt_.ok() ? GetItem(rt_, object, index) : Value();
  }
  const auto& slice = static_cast<const SliceExpr&>(*expr.index);
  const auto bound = [this](const ExprPtr& e) { return e == nullptr ? Value::None() : Eval(*e); };
  const Value start = bound(slice.start), stop = bound(slice.stop), step = bound(slice.step);
  return rt_.ok() ? GetSlice(rt_, object, start, stop, step) : Value();
}

std::vector<Value> Evaluator::EvalItems(const std::vector<ExprPtr>& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(Eval(*item));
  return values;
}

void Evaluator::EvalArgs(const CallArgs& exprs, Args* args) {
  args->positional = EvalItems(exprs.positional);
  for (const auto& [name, expr] : exprs.named) args->named.emplace_back(name, Eval(*expr));
  if (exprs.star != nullptr) {
    for (Value& value : Iterate(rt_, Eval(*exprs.star))) args->positional.push_back(std::move(value));
  }
  if (exprs.star_star != nullptr) {
    const Value named = Eval(*exprs.star_star);
    if (!named.IsDict()) {
      rt_.Fail("argument after ** must be a mapping, not ", TypeName(named));
      return;
    }
    for (const auto& [key, value] : named.dict().items) {
      if (!key.IsString()) {
        rt_.Fail("keywords must be strings");
        return;
      }
      args->named.emplace_back(key.text(), value);
    }
  }
}

Value Evaluator::EvalCall(const CallExpr& expr, const Value* caller) {
  const Value callee = Eval(*expr.callee);
  if (!rt_.ok()) return Value();
  Args args;
  EvalArgs(expr.args, &args);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  if (!rt_.ok()) return Value();
  rt_.line = expr.line;
  if (callee.IsUndefined()) return rt_.FailUndefined(callee);
  if (callee.kind() != Kind::kObject) return rt_.Fail("'", TypeName(callee), "' object is not callable");
  return callee.object().Call(rt_, args);
}

Value Evaluator::ApplyBuiltin(const BuiltinExpr& expr, const Value& input) {
  Args args;
  EvalArgs(expr.args, &args);
  rt_.line = expr.line;
  return rt_.ok() ? expr.function(rt_, input, args) : Value();
}

}  // namespace moe::chat
