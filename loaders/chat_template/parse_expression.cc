// The expression rules of the parser, loosest binding first.
#include <algorithm>

#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/parser.h"

namespace moe::chat {

void Parser::Adopt(Expr* node, ExprPtr* slot, ExprPtr child) {
  if (child != nullptr) {
    node->height = std::max(node->height, child->height + 1);
    if (node->height > kMaxHeight) Fail("an expression has more than ", kMaxHeight, " levels");
  }
  *slot = std::move(child);
}

ExprPtr Parser::Binary(ExprKind kind, BinaryOp op, ExprPtr left, ExprPtr right) {
  auto node = Make<BinaryExpr>(kind);
  node->op = op;
  if (left != nullptr) node->line = left->line;
  Adopt(node.get(), &node->left, std::move(left));
  Adopt(node.get(), &node->right, std::move(right));
  return node;
}

ExprPtr Parser::ParseExpression(bool with_condition) {
  const Nest nest(this, &nesting_, kMaxNesting);
  return with_condition ? ParseCondition() : ParseOr();
}

ExprPtr Parser::ParseCondition() {
  ExprPtr then = ParseOr();
  while (SkipName("if")) {
    auto node = Make<ConditionExpr>();
    Adopt(node.get(), &node->then, std::move(then));
    Adopt(node.get(), &node->test, ParseOr());
    if (SkipName("else")) Adopt(node.get(), &node->otherwise, ParseExpression());
    then = std::move(node);
  }
  return then;
}

ExprPtr Parser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (SkipName("or")) left = Binary(ExprKind::kOr, BinaryOp::kAdd, std::move(left), ParseAnd());
  return left;
}

ExprPtr Parser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (SkipName("and")) left = Binary(ExprKind::kAnd, BinaryOp::kAdd, std::move(left), ParseNot());
  return left;
}

ExprPtr Parser::ParseNot() {
  if (!SkipName("not")) return ParseCompare();
  const Nest nest(this, &nesting_, kMaxNesting);
  auto node = Make<UnaryExpr>(ExprKind::kNot);
  Adopt(node.get(), &node->operand, ParseNot());
  return node;
}

ExprPtr Parser::ParseCompare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe},
  };
  ExprPtr first = ParseSum();
  std::unique_ptr<CompareExpr> node;
  for (;;) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [this](auto& o) { return IsOperator(o.first); });
    CompareOp found = CompareOp::kIn;
    if (op != std::end(kOps)) {
      found = op->second;
      Next();
    } else if (IsName("not") && IsName("in", 1)) {
      found = CompareOp::kNotIn;
      Next();
      Next();
    } else if (!SkipName("in")) {
      break;
    }
    if (node == nullptr) {
      node = Make<CompareExpr>();
      Adopt(node.get(), &node->first, std::move(first));
    }
    ExprPtr operand;
    Adopt(node.get(), &operand, ParseSum());
    node->rest.emplace_back(found, std::move(operand));
  }
  if (node != nullptr) return node;
  return first;
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  for (;;) {
    if (SkipOperator("+")) {
      left = Binary(ExprKind::kBinary, BinaryOp::kAdd, std::move(left), ParseConcat());
    } else if (SkipOperator("-")) {
      left = Binary(ExprKind::kBinary, BinaryOp::kSub, std::move(left), ParseConcat());
    } else {
      return left;
    }
  }
}

ExprPtr Parser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  auto node = Make<ItemsExpr>(ExprKind::kConcat);
  Adopt(node.get(), &node->items.emplace_back(), std::move(first));
  while (SkipOperator("~")) {
    ExprPtr item = ParseProduct();
    Adopt(node.get(), &node->items.emplace_back(), std::move(item));
  }
  return node;
}

ExprPtr Parser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}};
  ExprPtr left = ParsePower();
  for (;;) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [this](auto& o) { return IsOperator(o.first); });
    if (op == std::end(kOps)) return left;
    Next();
    left = Binary(ExprKind::kBinary, op->second, std::move(left), ParsePower());
  }
}

// From left to right, unlike in Python: so does jinja.
ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary();
  while (SkipOperator("**")) left = Binary(ExprKind::kBinary, BinaryOp::kPow, std::move(left), ParseUnary());
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  const Nest nest(this, &nesting_, kMaxNesting);
  ExprPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    auto unary = Make<UnaryExpr>(Next().text == "-" ? ExprKind::kNegative : ExprKind::kPositive);
    Adopt(unary.get(), &unary->operand, ParseUnary(false));
    node = std::move(unary);
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterOrTest(std::move(node)) : std::move(node);
}

ExprPtr Parser::ParsePrimary() {
  switch (Peek().type) {
    case TokenType::kName: {
      const std::string& name = Peek().text;
      if (name == "true" || name == "True" || name == "false" || name == "False" || name == "none" || name == "None") {
        return ParseConst();
      }
      auto node = Make<NameExpr>();
      node->symbol = syntax_.symbols.Intern(Next().text);
      for (MacroDefinition* macro : macros_) {
        macro->uses_caller = macro->uses_caller || node->symbol == kCallerSymbol;
        macro->uses_varargs = macro->uses_varargs || node->symbol == kVarargsSymbol;
        macro->uses_kwargs = macro->uses_kwargs || node->symbol == kKwargsSymbol;
      }
      return node;
    }
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
      return ParseConst();
    default:
      break;
  }
  if (SkipOperator("(")) {
    ExprPtr inner = ParseTuple(/*with_condition=*/true, "", /*in_parentheses=*/true);
    ExpectOperator(")");
    return inner;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  Fail("unexpected ", Describe(Peek()));
  return nullptr;
}

ExprPtr Parser::ParseConst() {
  auto node = Make<ConstExpr>();
  const Token& token = Next();
  switch (token.type) {
    case TokenType::kInteger:
      node->value = Value::Int(token.integer);
      break;
    case TokenType::kFloat:
      node->value = Value::Float(token.number);
      break;
    case TokenType::kString: {
      node->text.owned = token.text;
      while (Peek().type == TokenType::kString) node->text.owned += Next().text;  // 'a' 'b' is 'ab'.
      node->text.view = node->text.owned;
      node->text.trusted = true;
      node->text.immortal = true;
      node->value = Value::String(&node->text);
      break;
    }
    default:
      if (token.text == "none" || token.text == "None") {
        node->value = Value::None();
      } else {
        node->value = Value::Bool(token.text == "true" || token.text == "True");
      }
  }
  return node;
}

ExprPtr Parser::ParseList() {
  auto node = Make<ItemsExpr>(ExprKind::kList);
  ExpectOperator("[");
  while (status_.ok() && !IsOperator("]")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    ExprPtr item = ParseExpression();
    Adopt(node.get(), &node->items.emplace_back(), std::move(item));
  }
  ExpectOperator("]");
  return node;
}

ExprPtr Parser::ParseDict() {
  auto node = Make<ItemsExpr>(ExprKind::kDict);
  ExpectOperator("{");
  while (status_.ok() && !IsOperator("}")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    ExprPtr key = ParseExpression();
    Adopt(node.get(), &node->items.emplace_back(), std::move(key));
    ExpectOperator(":");
    ExprPtr value = ParseExpression();
    Adopt(node.get(), &node->items.emplace_back(), std::move(value));
  }
  ExpectOperator("}");
  return node;
}

ExprPtr Parser::ParseTuple(bool with_condition, std::string_view end_name, bool in_parentheses) {
  auto node = Make<ItemsExpr>(ExprKind::kTuple);
  bool is_tuple = false;
  while (status_.ok()) {
    if (!node->items.empty()) ExpectOperator(",");
    const TokenType type = Peek().type;
    if (type == TokenType::kPrintEnd || type == TokenType::kBlockEnd || IsOperator(")")) break;
    if (!end_name.empty() && IsName(end_name)) break;
    ExprPtr item = ParseExpression(with_condition);
    Adopt(node.get(), &node->items.emplace_back(), std::move(item));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && node->items.size() == 1) return std::move(node->items[0]);
  if (!is_tuple && !in_parentheses) Fail("Expected an expression, got ", Describe(Peek()));
  return node;
}

ExprPtr Parser::ParsePostfix(ExprPtr node) {
  for (;;) {
    if (IsOperator(".") || IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseFilterOrTest(ExprPtr node) {
  for (;;) {
    if (SkipOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (SkipName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseSubscript(ExprPtr object) {
  if (SkipOperator(".")) {
    if (Peek().type == TokenType::kInteger) {
      auto node = Make<ItemExpr>();
      Adopt(node.get(), &node->object, std::move(object));
      Adopt(node.get(), &node->index, ParseConst());
      return node;
    }
    auto node = Make<AttributeExpr>();
    node->name = ExpectName();
    Adopt(node.get(), &node->object, std::move(object));
    return node;
  }
  ExpectOperator("[");
  auto node = Make<ItemExpr>();
  Adopt(node.get(), &node->object, std::move(object));
  auto indices = Make<ItemsExpr>(ExprKind::kTuple);
  while (status_.ok() && !IsOperator("]")) {
    if (!indices->items.empty()) ExpectOperator(",");
    ExprPtr index = ParseIndex();
    Adopt(indices.get(), &indices->items.emplace_back(), std::move(index));
  }
  ExpectOperator("]");
  const bool single = indices->items.size() == 1;
  Adopt(node.get(), &node->index, single ? std::move(indices->items[0]) : ExprPtr(std::move(indices)));
  return node;
}

ExprPtr Parser::ParseIndex() {
  auto node = Make<SliceExpr>();
  const auto at_end = [this] { return IsOperator("]") || IsOperator(",") || IsOperator(":"); };
  if (!IsOperator(":")) {
    ExprPtr index = ParseExpression();
    if (!IsOperator(":")) return index;
    Adopt(node.get(), &node->start, std::move(index));
  }
  ExpectOperator(":");
  if (!at_end()) Adopt(node.get(), &node->stop, ParseExpression());
  if (SkipOperator(":") && !at_end()) Adopt(node.get(), &node->step, ParseExpression());
  return node;
}

ExprPtr Parser::ParseCall(ExprPtr callee) {
  auto node = Make<CallExpr>();
  Adopt(node.get(), &node->callee, std::move(callee));
  ParseArguments(node.get(), &node->args);
  return node;
}

void Parser::ParseArguments(Expr* node, CallArgs* args) {
  ExpectOperator("(");
  bool first = true;
  while (status_.ok() && !IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    first = false;
    bool in_order = true;
    if (SkipOperator("**")) {
      in_order = args->star_star == nullptr;
      Adopt(node, &args->star_star, ParseExpression());
    } else if (SkipOperator("*")) {
      in_order = args->star == nullptr && args->star_star == nullptr;
      Adopt(node, &args->star, ParseExpression());
    } else if (Peek().type == TokenType::kName && Peek(1).type == TokenType::kOperator && Peek(1).text == "=") {
      in_order = args->star_star == nullptr;
      std::string name = Next().text;
      Next();
      ExprPtr value;
      Adopt(node, &value, ParseExpression());
      args->named.emplace_back(std::move(name), std::move(value));
    } else {
      in_order = args->star == nullptr && args->star_star == nullptr && args->named.empty();
      ExprPtr value;
      Adopt(node, &value, ParseExpression());
      args->positional.push_back(std::move(value));
    }
    if (!in_order) Fail("invalid syntax for function call expression");
  }
  ExpectOperator(")");
}

std::unique_ptr<BuiltinExpr> Parser::ParseFilter(ExprPtr input) {
  auto node = Make<BuiltinExpr>(ExprKind::kFilter);
  Adopt(node.get(), &node->input, std::move(input));
  std::string name = ExpectName();
  while (SkipOperator(".")) name = Cat(name, ".", ExpectName());
  node->function = FindFilter(name);
  if (node->function == nullptr && status_.ok()) {
    FailWith(UnsupportedError(file_, ": chat_template line ", node->line, ": No filter named '", name, "'."));
  }
  if (IsOperator("(")) ParseArguments(node.get(), &node->args);
  return node;
}

ExprPtr Parser::ParseTest(ExprPtr input) {
  auto node = Make<BuiltinExpr>(ExprKind::kTest);
  const bool negated = SkipName("not");
  Adopt(node.get(), &node->input, std::move(input));
  std::string name = ExpectName();
  while (SkipOperator(".")) name = Cat(name, ".", ExpectName());
  node->function = FindTest(name);
  if (node->function == nullptr && status_.ok()) {
    FailWith(UnsupportedError(file_, ": chat_template line ", node->line, ": No test named '", name, "'."));
  }
  const TokenType type = Peek().type;
  if (IsOperator("(")) {
    ParseArguments(node.get(), &node->args);
  } else if ((type == TokenType::kName && !IsName("else") && !IsName("or") && !IsName("and")) ||
             type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
             IsOperator("[") || IsOperator("{")) {
    // One argument may do without parentheses: `x is divisibleby 3`.
    if (IsName("is")) Fail("You cannot chain multiple tests with is");
    Adopt(node.get(), &node->args.positional.emplace_back(), ParsePostfix(ParsePrimary()));
  }
  if (!negated) return node;
  auto inverse = Make<UnaryExpr>(ExprKind::kNot);
  Adopt(inverse.get(), &inverse->operand, std::move(node));
  return inverse;
}

}  // namespace moe::chat
