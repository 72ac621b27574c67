// The alphabet of byte-level tokenizers: a printable character stands for each of the 256 byte values, so that a
// vocabulary can be written as text. Printable bytes stand for themselves; the others count up from U+0100.
#ifndef MOE_LOADERS_TOKENIZER_BYTE_ALPHABET_H_
#define MOE_LOADERS_TOKENIZER_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace moe {

// Appends the spelling of `bytes`, two bytes of UTF-8 at most for each.
void AppendByteSpelling(std::string_view bytes, std::string* out);

// Appends the bytes that `token` spells. A token with any character outside the alphabet (an added token, say) stands
// for its own UTF-8 bytes. REQUIRES: `token` is valid UTF-8.
void AppendSpelledBytes(std::string_view token, std::string* out);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_BYTE_ALPHABET_H_
