// From source to syntax tree.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_PARSER_H_
#define MOE_LOADERS_CHAT_TEMPLATE_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/chat_template/ast.h"
#include "loaders/chat_template/lexer.h"
#include "parallel/base/status.h"

namespace moe::chat {

// INVALID for bad syntax, UNSUPPORTED for tags, filters and tests that jinja has and this engine does not; both name
// `file` and the line. Source, nesting and expressions are bounded in size, so that recursion over the tree is.
StatusOr<Syntax> Parse(std::string_view source, std::string_view file);

// Recursive descent, in the order of precedence. The first error is kept and moves the parser to the end of the
// template, where every rule stops by itself: rules return null children after an error, which nobody evaluates.
class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view file) : tokens_(std::move(tokens)), file_(file) {}
  StatusOr<Syntax> Run();

 private:
  static constexpr int kMaxNesting = 100;      // Brackets, unary operators, else branches of expressions.
  static constexpr int kMaxBlockNesting = 50;  // Statements within statements.
  static constexpr int kMaxHeight = 400;       // Of an expression: a + b + c + … is as deep as it is long.

  // Counts a level of nesting while it lives.
  class Nest {
   public:
    Nest(Parser* parser, int* depth, int limit) : depth_(depth) {
      if (++*depth_ > limit) parser->Fail("nested deeper than ", limit, " levels");
    }
    ~Nest() { --*depth_; }

   private:
    int* depth_;
  };

  // Token stream.
  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  const Token& Next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool IsOperator(std::string_view op) const { return Peek().type == TokenType::kOperator && Peek().text == op; }
  bool IsName(std::string_view name, size_t ahead = 0) const {
    return Peek(ahead).type == TokenType::kName && Peek(ahead).text == name;
  }
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void Expect(TokenType type, std::string_view what);
  std::string ExpectName();

  // Errors.
  template <typename... Args>
  void Fail(const Args&... args) {
    FailWith(InvalidError(file_, ": chat_template line ", Peek().line, ": ", args...));
  }
  void FailWith(Status status);
  std::string Describe(const Token& token) const;

  // Expressions (parse_expression.cc).
  template <typename Node, typename... Args>
  std::unique_ptr<Node> Make(Args... args) {
    auto node = std::make_unique<Node>(args...);
    node->line = Peek().line;
    return node;
  }
  // Makes `child` a child of `node` in `slot`, and keeps count of the height.
  void Adopt(Expr* node, ExprPtr* slot, ExprPtr child);
  ExprPtr Binary(ExprKind kind, BinaryOp op, ExprPtr left, ExprPtr right);
  ExprPtr ParseExpression(bool with_condition = true);
  ExprPtr ParseCondition();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilterOrTest(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseIndex();
  ExprPtr ParseCall(ExprPtr node);
  void ParseArguments(Expr* node, CallArgs* args);
  std::unique_ptr<BuiltinExpr> ParseFilter(ExprPtr input);
  ExprPtr ParseTest(ExprPtr input);
  ExprPtr ParseConst();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  // One expression, or a tuple of them without brackets.
  ExprPtr ParseTuple(bool with_condition = true, std::string_view end_name = "", bool in_parentheses = false);

  // Statements (parse_statement.cc).
  Block ParseBody(std::initializer_list<std::string_view> end_names);
  Block ParseUntil(std::initializer_list<std::string_view> end_names);
  std::unique_ptr<Stmt> ParseStatement();
  std::unique_ptr<Stmt> ParseIf();
  std::unique_ptr<Stmt> ParseFor();
  std::unique_ptr<Stmt> ParseSet();
  std::unique_ptr<Stmt> ParseMacro();
  std::unique_ptr<Stmt> ParseCallBlock();
  std::unique_ptr<Stmt> ParseFilterBlock();
  std::unique_ptr<Stmt> ParseWith();
  std::unique_ptr<Stmt> ParseGeneration();
  std::unique_ptr<Stmt> ParsePrint();
  std::unique_ptr<Stmt> ParseLoopControl(StmtKind kind);
  void ParseParameters(MacroDefinition* macro);
  void ParseMacroBody(MacroDefinition* macro, std::string_view end_name);
  Target ParseTarget(bool with_namespace, std::string_view end_name = "");
  Target ParseTargetItem(bool with_namespace);
  void FailUnknownTag(const std::string& name);

  std::vector<Token> tokens_;
  std::string_view file_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int block_nesting_ = 0;
  int loops_ = 0;                         // For loops around, within the macro.
  std::vector<MacroDefinition*> macros_;  // The macros around, outermost first.
  std::vector<std::string> open_tags_;    // For error messages.
  Syntax syntax_;
  Status status_;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_PARSER_H_
