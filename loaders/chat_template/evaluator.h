// Walks the syntax tree of a template for one render.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_H_
#define MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_H_

#include <utility>
#include <vector>

#include "loaders/chat_template/ast.h"
#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// The variables of one block. Reading looks outwards, assigning stays here: what a loop body sets is gone after it.
struct Scope : Owned {
  explicit Scope(Scope* p) : parent(p) {}
  const Value* Find(Symbol symbol) const;
  void Set(Symbol symbol, Value value);

  Scope* parent;
  bool captured = false;  // A macro remembers it, so that a loop may not use it again for its next round.
  std::vector<std::pair<Symbol, Value>> variables;
};

class Evaluator {
 public:
  Evaluator(Runtime& runtime, const Syntax& syntax);

  // Sets a variable of the template; does nothing if the template does not mention it.
  void Define(const std::string& name, const Value& value);
  bool Mentions(const std::string& name) const { return syntax_.symbols.ids.count(name) > 0; }
  // Renders all of the template.
  void Run(Text* out);

  // For the objects of evaluator_objects.h.
  Value CallMacro(const MacroDefinition& macro, Scope* closure, Args& args);
  Value CallLoop(const ForStmt& loop, Scope* outer, const Value& sequence, int depth0);
  // Whether `item` passes the loop's filter.
  bool PassesFilter(const ForStmt& loop, Scope* outer, const Value& item);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Expressions (eval_expression.cc).
  Value Eval(const Expr& expr);
  Value EvalNode(const Expr& expr);
  Value EvalName(const NameExpr& expr);
  Value EvalBinary(const BinaryExpr& expr);
  Value EvalCompare(const CompareExpr& expr);
  Value EvalDict(const ItemsExpr& expr);
  Value EvalItem(const ItemExpr& expr);
  Value EvalCall(const CallExpr& expr, const Value* caller);
  Value EvalUnary(const UnaryExpr& expr);
  Value ApplyBuiltin(const BuiltinExpr& expr, const Value& input);
  std::vector<Value> EvalItems(const std::vector<ExprPtr>& items);
  void EvalArgs(const CallArgs& exprs, Args* args);

  // Statements (eval_statement.cc).
  Flow Exec(const Block& block);
  Flow ExecIn(const Block& block, Scope* scope);
  Flow ExecStmt(const Stmt& stmt);
  Flow ExecIf(const IfStmt& stmt);
  Flow ExecLoop(const ForStmt& stmt, Scope* outer, const Value& sequence, int depth0);
  void ExecCapture(const CaptureStmt& stmt);
  void ExecCallBlock(const CallBlockStmt& stmt);
  Flow ExecWith(const WithStmt& stmt);
  Value Capture(const Block& block, Scope* scope);
  void Assign(const Target& target, const Value& value);
  Value NewMacro(const MacroDefinition& macro);

  Runtime& rt_;
  const Syntax& syntax_;
  Scope* globals_;  // Functions of the engine, as they are found.
  Scope* root_;
  Scope* scope_;
  Text* out_ = nullptr;
  int depth_ = 0;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_H_
