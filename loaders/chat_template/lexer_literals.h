// Number and string literals of template expressions.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_LEXER_LITERALS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_LEXER_LITERALS_H_

#include <string>
#include <string_view>

#include "loaders/chat_template/lexer.h"

namespace moe::chat {

// Reads the integer or float at `pos` (a digit) into `token`. Returns where it ends; 0 if it does not fit.
size_t LexNumber(std::string_view text, size_t pos, Token* token);

// Resolves the escapes of Python's string literals. Returns what is wrong, "" if nothing is.
std::string Unescape(std::string_view literal, std::string* out);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_LEXER_LITERALS_H_
