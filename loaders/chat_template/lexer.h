// Cuts a template's source into tokens, with jinja's rules for white space: trim_blocks (a newline after a block tag
// goes), lstrip_blocks (blanks before a block tag at the start of a line go), - and + in tags, and no newline at the
// end of the source.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_LEXER_H_
#define MOE_LOADERS_CHAT_TEMPLATE_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/status.h"

namespace moe::chat {

enum class TokenType : uint8_t {
  kData,        // Text outside of tags.
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // Of the template; the last token, always there.
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text;  // Of data, a name, an operator; of a string without quotes and escapes.
  int64_t integer = 0;
  double number = 0;
};

// `file` is named in errors: INVALID "FILE: chat_template line N: …".
StatusOr<std::vector<Token>> Tokenize(std::string_view source, std::string_view file);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_LEXER_H_
