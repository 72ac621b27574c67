// What SentencePiece does to text before it is cut up: the rules of a model's normalizer_spec.
#ifndef MOE_LOADERS_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
#define MOE_LOADERS_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_

#include <memory>
#include <string_view>

#include "loaders/tokenizer/normalizer.h"
#include "loaders/tokenizer/sentencepiece_file.h"
#include "parallel/base/status.h"

namespace moe {

inline constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";  // "▁", the visible space.

// `dummy_prefix`: add the space that add_dummy_prefix asks for here; false leaves it to a later step.
// CORRUPT when the character map is damaged. Keeps nothing of `model`.
StatusOr<std::unique_ptr<Normalizer>> CreateSentencePieceNormalizer(const SentencePieceFile& model, bool dummy_prefix,
                                                                    std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
