// Model output for a terminal: what could move the cursor, change colours or reverse the text is made visible instead.
#ifndef MOE_SERVER_COMMANDS_TERMINAL_TEXT_H_
#define MOE_SERVER_COMMANDS_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace moe {

// Keeps line ends and tabs. Other control characters (C0, DEL, C1) become \xNN, bidirectional controls \u{NNNN}.
// REQUIRES: `text` is whole UTF-8 characters.
std::string TerminalText(std::string_view text);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_TERMINAL_TEXT_H_
