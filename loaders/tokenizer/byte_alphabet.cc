#include "loaders/tokenizer/byte_alphabet.h"

#include <array>

#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

constexpr char32_t kAlphabetEnd = 256 + 68;  // 68 byte values are not printable.

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character{};     // byte value → character
  std::array<int16_t, kAlphabetEnd> byte{};  // character → byte value, -1: not in the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

void AppendByteSpelling(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) AppendUtf8(kAlphabet.character[static_cast<unsigned char>(byte)], out);
}

void AppendSpelledBytes(std::string_view token, std::string* out) {
  const size_t size_before = out->size();
  for (size_t pos = 0; pos < token.size();) {
    const char32_t character = NextCodePoint(token, &pos);
    if (character >= kAlphabetEnd || kAlphabet.byte[character] < 0) {
      out->resize(size_before);
      out->append(token);
      return;
    }
    out->push_back(static_cast<char>(kAlphabet.byte[character]));
  }
}

}  // namespace moe
