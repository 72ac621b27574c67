#include "loaders/chat_template/parser.h"

namespace moe::chat {

constexpr size_t kMaxSourceBytes = 1 << 20;

StatusOr<Syntax> Parse(std::string_view source, std::string_view file) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidError(file, ": chat_template has ", source.size(), " bytes, more than ", kMaxSourceBytes);
  }
  MOE_ASSIGN_OR_RETURN(auto tokens, Tokenize(source, file));
  return Parser(std::move(tokens), file).Run();
}

StatusOr<Syntax> Parser::Run() {
  syntax_.body = ParseUntil({});
  if (!status_.ok()) return status_;
  return std::move(syntax_);
}

bool Parser::SkipOperator(std::string_view op) {
  const bool is = IsOperator(op);
  if (is) Next();
  return is;
}

bool Parser::SkipName(std::string_view name) {
  const bool is = IsName(name);
  if (is) Next();
  return is;
}

void Parser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) Fail("expected token '", op, "', got ", Describe(Peek()));
}

void Parser::Expect(TokenType type, std::string_view what) {
  if (Peek().type == type) {
    Next();
  } else {
    Fail("expected ", what, ", got ", Describe(Peek()));
  }
}

std::string Parser::ExpectName() {
  if (Peek().type == TokenType::kName) return Next().text;
  Fail("expected a name, got ", Describe(Peek()));
  return "";
}

void Parser::FailWith(Status status) {
  if (status_.ok()) status_ = std::move(status);
  pos_ = tokens_.size() - 1;
}

std::string Parser::Describe(const Token& token) const {
  switch (token.type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kPrintBegin:
      return "begin of print statement";
    case TokenType::kPrintEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "a string";
    case TokenType::kInteger:
      return "an integer";
    case TokenType::kFloat:
      return "a float";
    case TokenType::kEnd:
      return open_tags_.empty() ? "end of template"
                                : Cat("end of template (the tag '", open_tags_.back(), "' is not closed)");
    default:
      return Cat("'", token.text.substr(0, 100), "'");
  }
}

}  // namespace moe::chat
