// The statement rules of the parser.
#include <algorithm>

#include "loaders/chat_template/parser.h"

namespace moe::chat {

// The body of a statement: from the end of its opening tag to one of `end_names`, which is the current token then.
Block Parser::ParseBody(std::initializer_list<std::string_view> end_names) {
  SkipOperator(":");  // As Python writes it; jinja takes it as well.
  Expect(TokenType::kBlockEnd, "end of statement block");
  return ParseUntil(end_names);
}

Block Parser::ParseUntil(std::initializer_list<std::string_view> end_names) {
  const Nest nest(this, &block_nesting_, kMaxBlockNesting);
  Block block;
  while (status_.ok()) {
    const Token& token = Peek();
    if (token.type == TokenType::kEnd) {
      if (end_names.size() != 0) Fail("Unexpected end of template: the tag '", open_tags_.back(), "' is not closed");
      break;
    }
    if (token.type == TokenType::kData) {
      auto node = Make<TextStmt>();
      node->text = Next().text;
      block.push_back(std::move(node));
    } else if (token.type == TokenType::kPrintBegin) {
      auto node = Make<PrintStmt>();
      Next();
      node->values.push_back(ParseTuple());
      Expect(TokenType::kPrintEnd, "end of print statement");
      block.push_back(std::move(node));
    } else {
      Expect(TokenType::kBlockBegin, "begin of statement block");
      for (const std::string_view name : end_names) {
        if (IsName(name)) return block;
      }
      block.push_back(ParseStatement());
      Expect(TokenType::kBlockEnd, "end of statement block");
    }
  }
  return block;
}

std::unique_ptr<Stmt> Parser::ParseStatement() {
  const int line = Peek().line;
  const std::string tag = ExpectName();
  std::unique_ptr<Stmt> node;
  open_tags_.push_back(tag);
  if (tag == "if")
    node = ParseIf();
  else if (tag == "for")
    node = ParseFor();
  else if (tag == "set")
    node = ParseSet();
  else if (tag == "macro")
    node = ParseMacro();
  else if (tag == "call")
    node = ParseCallBlock();
  else if (tag == "filter")
    node = ParseFilterBlock();
  else if (tag == "with")
    node = ParseWith();
  else if (tag == "print")
    node = ParsePrint();
  else if (tag == "generation")
    node = ParseGeneration();
  else if (tag == "break")
    node = ParseLoopControl(StmtKind::kBreak);
  else if (tag == "continue")
    node = ParseLoopControl(StmtKind::kContinue);
  else if (status_.ok())
    FailUnknownTag(tag);
  open_tags_.pop_back();
  if (node != nullptr) node->line = line;
  return node;
}

void Parser::FailUnknownTag(const std::string& name) {
  static constexpr std::string_view kOfJinja[] = {"include", "import",     "from",  "extends", "block",
                                                  "do",      "autoescape", "trans", "debug"};
  --pos_;  // Back to the tag, whose line the message gives.
  const int line = Peek().line;
  if (std::find(std::begin(kOfJinja), std::end(kOfJinja), name) != std::end(kOfJinja)) {
    FailWith(UnsupportedError(file_, ": chat_template line ", line, ": the tag '", name, "' is not supported"));
    return;
  }
  const std::string inside = open_tags_.size() < 2 ? ""
                                                   : Cat(" The innermost tag that needs to be closed is '",
                                                         open_tags_[open_tags_.size() - 2], "'.");
  Fail("Encountered unknown tag '", name.substr(0, 100), "'.", inside);
}

std::unique_ptr<Stmt> Parser::ParseIf() {
  auto node = Make<IfStmt>();
  for (;;) {
    ExprPtr test = ParseTuple(/*with_condition=*/false);
    Block body = ParseBody({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(body));
    const std::string end = Next().text;
    if (end == "elif") continue;
    if (end == "else") {
      node->otherwise = ParseBody({"endif"});
      Next();
    }
    return node;
  }
}

std::unique_ptr<Stmt> Parser::ParseFor() {
  auto node = Make<ForStmt>();
  node->target = ParseTarget(/*with_namespace=*/false, "in");
  if (!SkipName("in")) Fail("expected 'in', got ", Describe(Peek()));
  node->sequence = ParseTuple(/*with_condition=*/false, "recursive");
  if (SkipName("if")) node->filter = ParseExpression();
  node->recursive = SkipName("recursive");
  ++loops_;
  node->body = ParseBody({"endfor", "else"});
  --loops_;
  if (Next().text == "else") {
    node->otherwise = ParseBody({"endfor"});
    Next();
  }
  return node;
}

std::unique_ptr<Stmt> Parser::ParseSet() {
  Target target = ParseTarget(/*with_namespace=*/true);
  if (SkipOperator("=")) {
    auto node = Make<SetStmt>();
    node->target = std::move(target);
    node->value = ParseTuple();
    return node;
  }
  auto node = Make<CaptureStmt>(StmtKind::kSetBlock);
  node->target = std::move(target);
  while (SkipOperator("|")) node->filters.push_back(ParseFilter(nullptr));
  node->body = ParseBody({"endset"});
  Next();
  return node;
}

std::unique_ptr<Stmt> Parser::ParseMacro() {
  auto node = Make<MacroStmt>();
  node->macro.name = ExpectName();
  node->symbol = syntax_.symbols.Intern(node->macro.name);
  ParseParameters(&node->macro);
  ParseMacroBody(&node->macro, "endmacro");
  return node;
}

std::unique_ptr<Stmt> Parser::ParseCallBlock() {
  auto node = Make<CallBlockStmt>();
  if (IsOperator("(")) ParseParameters(&node->caller);
  ExprPtr call = ParseExpression();
  if (call == nullptr || call->kind != ExprKind::kCall) {
    Fail("expected call");
    return node;
  }
  node->call.reset(static_cast<CallExpr*>(call.release()));
  ParseMacroBody(&node->caller, "endcall");
  return node;
}

void Parser::ParseParameters(MacroDefinition* macro) {
  ExpectOperator("(");
  while (status_.ok() && !IsOperator(")")) {
    if (!macro->parameters.empty()) ExpectOperator(",");
    MacroDefinition::Parameter parameter;
    parameter.name = ExpectName();
    parameter.symbol = syntax_.symbols.Intern(parameter.name);
    if (SkipOperator("=")) {
      parameter.absent = ParseExpression();
    } else if (!macro->parameters.empty() && macro->parameters.back().absent != nullptr) {
      Fail("non-default argument follows default argument");
    }
    macro->parameters.push_back(std::move(parameter));
  }
  ExpectOperator(")");
}

void Parser::ParseMacroBody(MacroDefinition* macro, std::string_view end_name) {
  // A loop outside is not one the body could leave.
  const int loops = loops_;
  loops_ = 0;
  macros_.push_back(macro);
  macro->body = ParseBody({end_name});
  macros_.pop_back();
  loops_ = loops;
  Next();
}

std::unique_ptr<Stmt> Parser::ParseFilterBlock() {
  auto node = Make<CaptureStmt>(StmtKind::kFilterBlock);
  do {
    node->filters.push_back(ParseFilter(nullptr));
  } while (SkipOperator("|"));
  node->body = ParseBody({"endfilter"});
  Next();
  return node;
}

std::unique_ptr<Stmt> Parser::ParseWith() {
  auto node = Make<WithStmt>();
  while (status_.ok() && Peek().type != TokenType::kBlockEnd) {
    if (!node->assignments.empty()) ExpectOperator(",");
    Target target = ParseTarget(/*with_namespace=*/false);
    ExpectOperator("=");
    node->assignments.emplace_back(std::move(target), ParseExpression());
  }
  node->body = ParseBody({"endwith"});
  Next();
  return node;
}

std::unique_ptr<Stmt> Parser::ParseGeneration() {
  auto node = Make<ScopeStmt>();
  const int loops = loops_;
  loops_ = 0;  // The reference runs this body as a function of its own.
  node->body = ParseBody({"endgeneration"});
  loops_ = loops;
  Next();
  return node;
}

std::unique_ptr<Stmt> Parser::ParsePrint() {
  auto node = Make<PrintStmt>();
  while (status_.ok() && Peek().type != TokenType::kBlockEnd) {
    if (!node->values.empty()) ExpectOperator(",");
    node->values.push_back(ParseExpression());
  }
  return node;
}

std::unique_ptr<Stmt> Parser::ParseLoopControl(StmtKind kind) {
  if (loops_ == 0) Fail("'", kind == StmtKind::kBreak ? "break" : "continue", "' outside of a loop");
  return Make<Stmt>(kind);
}

Target Parser::ParseTarget(bool with_namespace, std::string_view end_name) {
  Target first = ParseTargetItem(with_namespace);
  if (!IsOperator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.items.push_back(std::move(first));
  while (SkipOperator(",")) {
    // A comma may be the last thing: `for x, in pairs`.
    if (IsOperator("=") || IsOperator(")") || Peek().type == TokenType::kBlockEnd) break;
    if (!end_name.empty() && IsName(end_name)) break;
    tuple.items.push_back(ParseTargetItem(with_namespace));
  }
  return tuple;
}

Target Parser::ParseTargetItem(bool with_namespace) {
  const Nest nest(this, &nesting_, kMaxNesting);
  if (SkipOperator("(")) {
    Target inner = ParseTarget(with_namespace);
    ExpectOperator(")");
    return inner;
  }
  static constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
  Target target;
  const std::string name = ExpectName();
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    Fail("can't assign to '", name, "'");
  }
  target.symbol = syntax_.symbols.Intern(name);
  if (with_namespace && SkipOperator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.attribute = ExpectName();
  }
  return target;
}

}  // namespace moe::chat
