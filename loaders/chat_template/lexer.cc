#include "loaders/chat_template/lexer.h"

#include <algorithm>

#include "loaders/chat_template/lexer_literals.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

size_t SkipSpace(std::string_view text, size_t pos) {
  while (pos < text.size() && IsSpace(DecodeAt(text, pos).value)) pos += DecodeAt(text, pos).bytes;
  return pos;
}

std::string_view WithoutTrailingSpace(std::string_view text) {
  while (!text.empty()) {
    const CodePoint p = DecodeBefore(text, text.size());
    if (!IsSpace(p.value)) break;
    text.remove_suffix(p.bytes);
  }
  return text;
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view file) : source_(std::move(source)), text_(source_), file_(file) {}

  StatusOr<std::vector<Token>> Run() {
    while (pos_ < text_.size()) MOE_RETURN_IF_ERROR(LexOutside());
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  Status Error(const Args&... args) const {
    return InvalidError(file_, ": chat_template line ", line_, ": ", args...);
  }

  Token& Add(TokenType type, std::string_view text) {
    tokens_.push_back({type, line_, std::string(text)});
    return tokens_.back();
  }

  // Moves on to `pos`, counting lines.
  void MoveTo(size_t pos) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<int64_t>(pos_), text_.begin() + static_cast<int64_t>(pos), '\n'));
    if (pos > pos_) line_starting_ = text_[pos - 1] == '\n';
    pos_ = pos;
  }

  char At(size_t pos) const { return pos < text_.size() ? text_[pos] : '\0'; }

  // Emits the text before a tag at `tag`, stripped as `sign` (the - or + of the tag) and the kind of the tag ask for.
  void AddData(size_t tag, char sign, bool is_print) {
    std::string_view data = text_.substr(pos_, tag - pos_);
    if (sign == '-') {
      data = WithoutTrailingSpace(data);
    } else if (sign != '+' && !is_print) {
      const size_t line_begin = data.rfind('\n') == std::string_view::npos ? 0 : data.rfind('\n') + 1;
      const std::string_view rest = data.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && WithoutTrailingSpace(rest).empty()) data = data.substr(0, line_begin);
    }
    if (!data.empty()) Add(TokenType::kData, data);
    MoveTo(tag);
  }

  // The end of a "%}" or "#}" at `pos`, with what follows it and goes: all white space after "-", one newline else.
  size_t AfterBlockEnd(size_t pos, char sign) const {
    pos += 2;
    if (sign == '-') return SkipSpace(text_, pos);
    return sign != '+' && At(pos) == '\n' ? pos + 1 : pos;
  }

  Status LexOutside() {
    size_t tag = pos_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos) break;
      if (At(tag + 1) == '{' || At(tag + 1) == '%' || At(tag + 1) == '#') break;
    }
    if (tag == std::string_view::npos) {
      Add(TokenType::kData, text_.substr(pos_));
      MoveTo(text_.size());
      return absl::OkStatus();
    }
    const char kind = At(tag + 1);
    const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? At(tag + 2) : '\0';
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    AddData(tag, sign, kind == '{');
    if (kind == '#') return LexComment(inside);
    if (kind == '%') {
      if (const size_t body = RawBody(inside); body != 0) return LexRaw(body);
    }
    Add(kind == '{' ? TokenType::kPrintBegin : TokenType::kBlockBegin, "");
    MoveTo(inside);
    return LexInside(kind == '{');
  }

  Status LexComment(size_t inside) {
    const size_t end = text_.find("#}", inside);
    if (end == std::string_view::npos) return Error("Missing end of comment tag");
    MoveTo(AfterBlockEnd(end, end > inside ? At(end - 1) : '\0'));
    return absl::OkStatus();
  }

  // Where the body of a raw block begins if the tag at `inside` opens one, else 0.
  size_t RawBody(size_t inside) const {
    size_t pos = SkipSpace(text_, inside);
    if (text_.substr(pos, 3) != "raw") return 0;
    pos = SkipSpace(text_, pos + 3);
    if (text_.substr(pos, 2) == "%}") return pos + 2;
    return text_.substr(pos, 3) == "-%}" ? SkipSpace(text_, pos + 3) : 0;
  }

  Status LexRaw(size_t body) {
    MoveTo(body);
    for (size_t tag = text_.find("{%", body); tag != std::string_view::npos; tag = text_.find("{%", tag + 2)) {
      const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? At(tag + 2) : '\0';
      size_t pos = SkipSpace(text_, tag + 2 + (sign != '\0' ? 1 : 0));
      if (text_.substr(pos, 6) != "endraw") continue;
      pos = SkipSpace(text_, pos + 6);
      const char end_sign = At(pos) == '-' || At(pos) == '+' ? At(pos) : '\0';
      if (end_sign != '\0') ++pos;
      if (text_.substr(pos, 2) != "%}") continue;
      AddData(tag, sign, /*is_print=*/false);
      MoveTo(AfterBlockEnd(pos, end_sign));
      return absl::OkStatus();
    }
    return Error("Missing end of raw directive");
  }

  // The tokens of one tag, up to and with its end.
  Status LexInside(bool is_print) {
    std::string open;  // The brackets not closed yet, as their closing ones. A tag cannot end within them.
    const std::string_view end = is_print ? "}}" : "%}";
    for (;;) {
      MoveTo(SkipSpace(text_, pos_));
      if (pos_ >= text_.size()) return absl::OkStatus();  // The parser misses the end of the tag.
      if (open.empty()) {
        const char sign = At(pos_) == '-' || (At(pos_) == '+' && !is_print) ? At(pos_) : '\0';
        const size_t at = pos_ + (sign != '\0' ? 1 : 0);
        if (text_.substr(at, 2) == end) {
          Add(is_print ? TokenType::kPrintEnd : TokenType::kBlockEnd, "");
          // A newline after a print tag stays.
          MoveTo(is_print ? (sign == '-' ? SkipSpace(text_, at + 2) : at + 2) : AfterBlockEnd(at, sign));
          return absl::OkStatus();
        }
      }
      MOE_RETURN_IF_ERROR(LexToken(&open));
    }
  }

  Status LexToken(std::string* open) {
    const char c = text_[pos_];
    if (c >= '0' && c <= '9') {
      Token& token = Add(TokenType::kInteger, "");
      const size_t end = LexNumber(text_, pos_, &token);
      if (end == 0) return Error("an integer does not fit 64 bits");
      MoveTo(end);
      return absl::OkStatus();
    }
    if (IsNameByte(c)) {
      size_t end = pos_;
      while (end < text_.size() && (IsNameByte(text_[end]) || (text_[end] >= '0' && text_[end] <= '9'))) ++end;
      Add(TokenType::kName, text_.substr(pos_, end - pos_));
      MoveTo(end);
      return absl::OkStatus();
    }
    if (c == '"' || c == '\'') {
      size_t end = pos_ + 1;
      while (end < text_.size() && text_[end] != c) end += text_[end] == '\\' ? 2 : 1;
      if (end >= text_.size()) return Error("a string is not closed");
      Token& token = Add(TokenType::kString, "");
      const std::string problem = Unescape(text_.substr(pos_ + 1, end - pos_ - 1), &token.text);
      if (!problem.empty()) return Error(problem);
      MoveTo(end + 1);
      return absl::OkStatus();
    }
    return LexOperator(open);
  }

  static bool IsNameByte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
  }

  Status LexOperator(std::string* open) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    std::string_view op = text_.substr(pos_, 2);
    if (std::find(std::begin(kDouble), std::end(kDouble), op) == std::end(kDouble)) op = text_.substr(pos_, 1);
    if (op.size() == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(op[0]) == std::string_view::npos) {
      return Error("unexpected char '", op, "'");
    }
    if (op == "(" || op == "[" || op == "{") {
      open->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
    } else if (op == ")" || op == "]" || op == "}") {
      if (open->empty()) return Error("unexpected '", op, "'");
      if (open->back() != op[0]) return Error("unexpected '", op, "', expected '", open->back(), "'");
      open->pop_back();
    }
    Add(TokenType::kOperator, op);
    MoveTo(pos_ + op.size());
    return absl::OkStatus();
  }

  const std::string source_;
  const std::string_view text_;
  const std::string_view file_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // Whether what was read last ended with a newline.
  std::vector<Token> tokens_;
};

// "\r\n" and "\r" become "\n", and one newline at the end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source, std::string_view file) {
  return Lexer(NormalizeNewlines(source), file).Run();
}

}  // namespace moe::chat
