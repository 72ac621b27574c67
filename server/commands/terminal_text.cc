#include "server/commands/terminal_text.h"

#include <cstdint>
#include <cstdio>

namespace moe {
namespace {

bool IsBidiControl(uint32_t code) {
  return (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f;
}

}  // namespace

std::string TerminalText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  char escaped[16];
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto at = [&](size_t k) -> uint32_t {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) & 0x3fu : 0;
    };
    const bool layout = byte == '\n' || byte == '\t';
    if (!layout && (byte < 0x20 || byte == 0x7f)) {
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      out += escaped;
      ++i;
    } else if (byte == 0xc2 && i + 1 < text.size() && at(1) < 0x20) {  // U+0080 … U+009F
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", 0x80 + at(1));
      out += escaped;
      i += 2;
    } else if (byte == 0xe2 && IsBidiControl(0x2000 | at(1) << 6 | at(2))) {
      std::snprintf(escaped, sizeof(escaped), "\\u{%04x}", 0x2000 | at(1) << 6 | at(2));
      out += escaped;
      i += 3;
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace moe
