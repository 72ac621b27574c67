// The syntax tree of a template. Built by the parser, never changed afterwards: any number of threads may render it.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_AST_H_
#define MOE_LOADERS_CHAT_TEMPLATE_AST_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/value.h"

namespace moe::chat {

// Variable names are numbers within one template.
using Symbol = int;

struct SymbolTable {
  SymbolTable() {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) Intern(name);
  }
  Symbol Intern(const std::string& name) {
    const auto [it, added] = ids.emplace(name, static_cast<Symbol>(names.size()));
    if (added) names.push_back(name);
    return it->second;
  }
  std::vector<std::string> names;
  std::unordered_map<std::string, Symbol> ids;
};
inline constexpr Symbol kLoopSymbol = 0, kCallerSymbol = 1, kVarargsSymbol = 2, kKwargsSymbol = 3;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kBinary,
  kConcat,
  kCompare,
  kCondition,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  explicit Expr(ExprKind k) : kind(k) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line = 0;
  int height = 1;  // Levels of the tree below and with this node; the parser bounds it.
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstExpr : Expr {
  ConstExpr() : Expr(ExprKind::kConst) {}
  StringData text;  // What `value` points to if it is a string, hence before it: it must go later.
  Value value;
};

struct NameExpr : Expr {
  NameExpr() : Expr(ExprKind::kName) {}
  Symbol symbol = 0;
};

// kTuple, kList, kConcat (a ~ b ~ c), and kDict with keys and values in turn.
struct ItemsExpr : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> items;
};

// kNot, kNegative, kPositive.
struct UnaryExpr : Expr {
  using Expr::Expr;
  ExprPtr operand;
};

// kAnd, kOr, kBinary.
struct BinaryExpr : Expr {
  using Expr::Expr;
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
};

// a < b <= c.
struct CompareExpr : Expr {
  CompareExpr() : Expr(ExprKind::kCompare) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

// then if test else otherwise.
struct ConditionExpr : Expr {
  ConditionExpr() : Expr(ExprKind::kCondition) {}
  ExprPtr test, then, otherwise;  // No `otherwise`: undefined.
};

struct AttributeExpr : Expr {
  AttributeExpr() : Expr(ExprKind::kAttribute) {}
  ExprPtr object;
  std::string name;
};

struct ItemExpr : Expr {
  ItemExpr() : Expr(ExprKind::kItem) {}
  ExprPtr object, index;  // The index may be a SliceExpr.
};

struct SliceExpr : Expr {
  SliceExpr() : Expr(ExprKind::kSlice) {}
  ExprPtr start, stop, step;  // Each may be absent.
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;
};

struct CallExpr : Expr {
  CallExpr() : Expr(ExprKind::kCall) {}
  ExprPtr callee;
  CallArgs args;
};

// kFilter (input | name(args)) and kTest (input is name(args)). In a chain of a set or filter block there is no input.
struct BuiltinExpr : Expr {
  using Expr::Expr;
  ExprPtr input;
  NativeFunction function = nullptr;
  CallArgs args;
};

// What an assignment assigns to.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  Symbol symbol = 0;
  std::string attribute;      // Of the namespace `symbol`.
  std::vector<Target> items;  // Of a tuple.
};

enum class StmtKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Stmt {
  explicit Stmt(StmtKind k) : kind(k) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  int line = 0;
};
using Block = std::vector<std::unique_ptr<Stmt>>;

struct TextStmt : Stmt {
  TextStmt() : Stmt(StmtKind::kText) {}
  std::string text;
};

struct PrintStmt : Stmt {
  PrintStmt() : Stmt(StmtKind::kPrint) {}
  std::vector<ExprPtr> values;
};

struct IfStmt : Stmt {
  IfStmt() : Stmt(StmtKind::kIf) {}
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};

struct ForStmt : Stmt {
  ForStmt() : Stmt(StmtKind::kFor) {}
  Target target;
  ExprPtr sequence, filter;  // The filter may be absent.
  bool recursive = false;
  Block body, otherwise;
};

struct SetStmt : Stmt {
  SetStmt() : Stmt(StmtKind::kSet) {}
  Target target;
  ExprPtr value;
};

// {% set x | filters %}…{% endset %} (kSetBlock) and {% filter filters %}…{% endfilter %} (kFilterBlock, no target).
struct CaptureStmt : Stmt {
  using Stmt::Stmt;
  Target target;
  std::vector<std::unique_ptr<BuiltinExpr>> filters;
  Block body;
};

struct MacroDefinition {
  struct Parameter {
    Symbol symbol = 0;
    std::string name;
    ExprPtr absent;  // The default, if there is one.
  };
  std::string name;  // Empty for the body of a call block.
  std::vector<Parameter> parameters;
  Block body;
  // Whether the body mentions these: only then does the macro take what they would hold.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct MacroStmt : Stmt {
  MacroStmt() : Stmt(StmtKind::kMacro) {}
  Symbol symbol = 0;
  MacroDefinition macro;
};

struct CallBlockStmt : Stmt {
  CallBlockStmt() : Stmt(StmtKind::kCallBlock) {}
  std::unique_ptr<CallExpr> call;
  MacroDefinition caller;
};

struct WithStmt : Stmt {
  WithStmt() : Stmt(StmtKind::kWith) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body;
};

// A block with a scope of its own and no other effect: {% generation %}.
struct ScopeStmt : Stmt {
  ScopeStmt() : Stmt(StmtKind::kScope) {}
  Block body;
};

struct Syntax {
  SymbolTable symbols;
  Block body;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_AST_H_
