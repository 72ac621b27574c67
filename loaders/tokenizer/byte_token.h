// Byte tokens: "<0x41>" stands for the byte 0x41 where a model has no token for a character.
#ifndef MOE_LOADERS_TOKENIZER_BYTE_TOKEN_H_
#define MOE_LOADERS_TOKENIZER_BYTE_TOKEN_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "loaders/tokenizer/vocabulary.h"

namespace moe {

// The byte, or -1 when `token` is not a byte token. Reads lower-case digits too, as the reference does.
int ReadByteToken(std::string_view token);

// The ids of <0x00> to <0xFF>; Vocabulary::kNone where the vocabulary has none.
std::array<int32_t, 256> FindByteTokens(const Vocabulary& vocabulary);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_BYTE_TOKEN_H_
