#include "loaders/tokenizer/byte_token.h"

#include <string>

namespace moe {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

int ReadByteToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int low = HexDigit(token[4]);
  // The reference's number parser takes a sign, so "<0x+A>" is a byte token for it.
  const int high = token[3] == '+' ? 0 : HexDigit(token[3]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::array<int32_t, 256> FindByteTokens(const Vocabulary& vocabulary) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::array<int32_t, 256> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    ids[static_cast<size_t>(byte)] = vocabulary.Find(token);
  }
  return ids;
}

}  // namespace moe
