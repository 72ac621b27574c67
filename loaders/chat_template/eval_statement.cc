// Statements, macros and loops.
#include "loaders/chat_template/evaluator.h"
#include "loaders/chat_template/evaluator_objects.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {

const Value* Scope::Find(Symbol symbol) const {
  for (const auto& [name, value] : variables) {
    if (name == symbol) return &value;
  }
  return nullptr;
}

void Scope::Set(Symbol symbol, Value value) {
  for (auto& variable : variables) {
    if (variable.first == symbol) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

Evaluator::Evaluator(Runtime& runtime, const Syntax& syntax)
    : rt_(runtime),
      syntax_(syntax),
      globals_(runtime.New<Scope>(nullptr)),
      root_(runtime.New<Scope>(globals_)),
      scope_(root_) {}

void Evaluator::Define(const std::string& name, const Value& value) {
  const auto it = syntax_.symbols.ids.find(name);
  if (it != syntax_.symbols.ids.end()) root_->Set(it->second, value);
}

void Evaluator::Run(Text* out) {
  out_ = out;
  Exec(syntax_.body);
}

Evaluator::Flow Evaluator::Exec(const Block& block) {
  for (const auto& stmt : block) {
    if (!rt_.Step()) break;
    const Flow flow = ExecStmt(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::ExecIn(const Block& block, Scope* scope) {
  Scope* const outer = scope_;
  scope_ = scope;
  const Flow flow = Exec(block);
  scope_ = outer;
  return flow;
}

Evaluator::Flow Evaluator::ExecStmt(const Stmt& stmt) {
  if (depth_ >= rt_.limits().eval_depth) {
    rt_.Fail("the template is nested deeper than ", rt_.limits().eval_depth, " levels (limit on depth)");
    return Flow::kNormal;
  }
  rt_.line = stmt.line;
  ++depth_;
  Flow flow = Flow::kNormal;
  switch (stmt.kind) {
    case StmtKind::kText:
      out_->Append(static_cast<const TextStmt&>(stmt).text, /*trusted=*/true);
      break;
    case StmtKind::kPrint:
      for (const ExprPtr& value : static_cast<const PrintStmt&>(stmt).values) AppendStr(rt_, Eval(*value), out_);
      break;
    case StmtKind::kIf:
      flow = ExecIf(static_cast<const IfStmt&>(stmt));
      break;
    case StmtKind::kFor: {
      const auto& loop = static_cast<const ForStmt&>(stmt);
      const Value sequence = Eval(*loop.sequence);
      if (rt_.ok()) ExecLoop(loop, scope_, sequence, 0);
      break;
    }
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(stmt);
      const Value value = Eval(*set.value);
      if (rt_.ok()) Assign(set.target, value);
      break;
    }
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
      ExecCapture(static_cast<const CaptureStmt&>(stmt));
      break;
    case StmtKind::kMacro: {
      const auto& macro = static_cast<const MacroStmt&>(stmt);
      scope_->Set(macro.symbol, NewMacro(macro.macro));
      break;
    }
    case StmtKind::kCallBlock:
      ExecCallBlock(static_cast<const CallBlockStmt&>(stmt));
      break;
    case StmtKind::kWith:
      flow = ExecWith(static_cast<const WithStmt&>(stmt));
      break;
    case StmtKind::kScope:
      flow = ExecIn(static_cast<const ScopeStmt&>(stmt).body, rt_.New<Scope>(scope_));
      break;
    case StmtKind::kBreak:
      flow = Flow::kBreak;
      break;
    case StmtKind::kContinue:
      flow = Flow::kContinue;
      break;
  }
  --depth_;
  return flow;
}

Evaluator::Flow Evaluator::ExecIf(const IfStmt& stmt) {
  for (const auto& [test, body] : stmt.branches) {
    const bool taken = Truth(Eval(*test));
    if (!rt_.ok()) return Flow::kNormal;
    if (taken) return Exec(body);
  }
  return Exec(stmt.otherwise);
}

Evaluator::Flow Evaluator::ExecLoop(const ForStmt& stmt, Scope* outer, const Value& sequence, int depth0) {
  std::vector<Value> items = Iterate(rt_, sequence);
  const size_t item_bytes = items.size() * sizeof(Value);
  if (!rt_.Reserve(item_bytes)) return Flow::kNormal;
  auto* loop = rt_.New<Loop>(*this, stmt, outer, std::move(items), depth0);
  const Value loop_value = Value::Of(loop);
  Scope* scope = nullptr;
  // As in jinja, rounds that end with break or continue do not count for the else branch.
  bool any = false;
  while (rt_.Step() && loop->Next()) {
    if (scope == nullptr || scope->captured) {
      scope = rt_.New<Scope>(outer);
    } else {
      scope->variables.clear();
    }
    Scope* const before = scope_;
    scope_ = scope;
    scope->Set(kLoopSymbol, loop_value);
    Assign(stmt.target, loop->item());
    const Flow flow = Exec(stmt.body);
    scope_ = before;
    any = any || flow == Flow::kNormal;
    if (flow == Flow::kBreak) break;
  }
  if (!any && rt_.ok() && !stmt.otherwise.empty()) return ExecIn(stmt.otherwise, rt_.New<Scope>(outer));
  return Flow::kNormal;
}

bool Evaluator::PassesFilter(const ForStmt& loop, Scope* outer, const Value& item) {
  if (!rt_.Step()) return false;
  Scope* const before = scope_;
  scope_ = rt_.New<Scope>(outer);
  Assign(loop.target, item);
  const bool passes = Truth(Eval(*loop.filter));
  scope_ = before;
  return passes && rt_.ok();
}

Value Evaluator::CallLoop(const ForStmt& loop, Scope* outer, const Value& sequence, int depth0) {
  if (rt_.macro_depth >= rt_.limits().macro_depth) {
    return rt_.Fail("loops call themselves deeper than ", rt_.limits().macro_depth, " levels (limit on depth)");
  }
  Text out(rt_);
  Text* const before = out_;
  out_ = &out;
  ++rt_.macro_depth;
  if (rt_.ok()) ExecLoop(loop, outer, sequence, depth0);
  --rt_.macro_depth;
  out_ = before;
  return out.Finish();
}

Value Evaluator::Capture(const Block& block, Scope* scope) {
  Text out(rt_);
  Text* const before = out_;
  out_ = &out;
  ExecIn(block, scope);
  out_ = before;
  return out.Finish();
}

void Evaluator::ExecCapture(const CaptureStmt& stmt) {
  Value value = Capture(stmt.body, rt_.New<Scope>(scope_));
  for (const auto& filter : stmt.filters) value = ApplyBuiltin(*filter, value);
  if (!rt_.ok()) return;
  if (stmt.kind == StmtKind::kSetBlock) {
    Assign(stmt.target, value);
  } else {
    AppendStr(rt_, value, out_);
  }
}

void Evaluator::ExecCallBlock(const CallBlockStmt& stmt) {
  const Value caller = NewMacro(stmt.caller);
  AppendStr(rt_, EvalCall(*stmt.call, &caller), out_);
}

Evaluator::Flow Evaluator::ExecWith(const WithStmt& stmt) {
  Scope* const inner = rt_.New<Scope>(scope_);
  Scope* const outer = scope_;
  for (const auto& [target, expr] : stmt.assignments) {
    const Value value = Eval(*expr);  // Sees the variables outside only.
    scope_ = inner;
    Assign(target, value);
    scope_ = outer;
  }
  return ExecIn(stmt.body, inner);
}

void Evaluator::Assign(const Target& target, const Value& value) {
  if (!rt_.Step()) return;
  switch (target.kind) {
    case Target::Kind::kName:
      return scope_->Set(target.symbol, value);
    case Target::Kind::kAttribute: {
      NameExpr name;
      name.symbol = target.symbol;
      auto* names = EvalName(name).As<Namespace>();
      if (names == nullptr) {
        rt_.Fail("cannot assign attribute on non-namespace object");
      } else if (target.attribute[0] == '_') {
        rt_.Fail("a namespace cannot have the attribute '", target.attribute, "': it starts with an underscore");
      } else if (rt_.Reserve(names->attributes().Find(target.attribute) == nullptr ? 2 * sizeof(Value) : 0)) {
        names->Set(rt_.View(target.attribute, true), value);
      }
      return;
    }
    case Target::Kind::kTuple: {
      const std::vector<Value> items = Iterate(rt_, value);
      if (!rt_.ok()) return;
      if (items.size() < target.items.size()) {
        rt_.Fail("not enough values to unpack (expected ", target.items.size(), ", got ", items.size(), ")");
      } else if (items.size() > target.items.size()) {
        rt_.Fail("too many values to unpack (expected ", target.items.size(), ")");
      } else {
        for (size_t i = 0; i < items.size(); ++i) Assign(target.items[i], items[i]);
      }
      return;
    }
  }
}

Value Evaluator::NewMacro(const MacroDefinition& macro) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  return Value::Of(rt_.New<Macro>(*this, macro, scope_));
}

Value Evaluator::CallMacro(const MacroDefinition& macro, Scope* closure, Args& args) {
  if (!rt_.Step()) return Value();
  if (rt_.macro_depth >= rt_.limits().macro_depth) {
    return rt_.Fail("macros call each other deeper than ", rt_.limits().macro_depth, " levels (limit on depth)");
  }
  Scope* const scope = rt_.New<Scope>(closure);
  std::vector<bool> used(args.named.size());
  const auto take = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (used[i] || args.named[i].first != name) continue;
      used[i] = true;
      return &args.named[i].second;
    }
    return nullptr;
  };
  const size_t count = macro.parameters.size();
  bool explicit_caller = false;
  Scope* const outer = scope_;
  ++rt_.macro_depth;
  for (size_t i = 0; i < count && rt_.ok(); ++i) {
    const auto& parameter = macro.parameters[i];
    explicit_caller = explicit_caller || parameter.symbol == kCallerSymbol;
    if (i < args.positional.size()) {
      scope->Set(parameter.symbol, args.positional[i]);
    } else if (const Value* given = take(parameter.name)) {
      scope->Set(parameter.symbol, *given);
    } else if (parameter.absent != nullptr) {
      scope_ = scope;  // A default may use the parameters before it.
      Value value = Eval(*parameter.absent);
      scope_ = outer;
      scope->Set(parameter.symbol, std::move(value));
    } else {
      scope->Set(parameter.symbol, rt_.UndefinedBecause(Cat("parameter '", parameter.name, "' was not provided")));
    }
  }
  if (macro.uses_caller && !explicit_caller) {
    const Value* caller = take("caller");
    scope->Set(kCallerSymbol, caller != nullptr ? *caller : rt_.UndefinedBecause("No caller defined"));
  }
  if (macro.uses_kwargs) {
    DictObject* rest = nullptr;
    scope->Set(kKwargsSymbol, rt_.NewDict(&rest));
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (!used[i]) rt_.Put(rest, rt_.View(args.named[i].first, true), args.named[i].second);
    }
  } else {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (!used[i]) rt_.Fail("macro '", macro.name, "' takes no keyword argument '", args.named[i].first, "'");
    }
  }
  if (macro.uses_varargs) {
    const size_t from = std::min(count, args.positional.size());
    scope->Set(kVarargsSymbol,
               rt_.NewTuple({args.positional.begin() + static_cast<int64_t>(from), args.positional.end()}));
  } else if (args.positional.size() > count) {
    rt_.Fail("macro '", macro.name, "' takes not more than ", count, " argument(s)");
  }
  Value text = rt_.ok() ? Capture(macro.body, scope) : Value();
  --rt_.macro_depth;
  return text;
}

}  // namespace moe::chat
