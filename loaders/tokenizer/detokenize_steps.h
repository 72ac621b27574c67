// The steps that a decoder is made of.
#ifndef MOE_LOADERS_TOKENIZER_DETOKENIZE_STEPS_H_
#define MOE_LOADERS_TOKENIZER_DETOKENIZE_STEPS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "loaders/tokenizer/metaspace.h"
#include "loaders/tokenizer/pattern.h"
#include "loaders/tokenizer/token_decoder.h"

namespace moe {

// Tokens become the bytes they spell (byte_alphabet.h). Fuses; holds back the bytes of a cut character.
std::unique_ptr<DetokenizeStep> MakeByteLevelStep();

// A run of byte tokens becomes the text of its bytes, or one U+FFFD for each byte if that is not UTF-8. One bad byte
// spoils the whole run, so a run is held back until a token of another kind ends it.
std::unique_ptr<DetokenizeStep> MakeByteFallbackStep();

// All tokens become one.
std::unique_ptr<DetokenizeStep> MakeFuseStep();

// Replaces a string or pattern within each token. `fused`: tokens arrive as fragments. A string is then searched for
// across fragments, a pattern is applied at the end.
std::unique_ptr<DetokenizeStep> MakeReplaceStep(Pattern pattern, std::string content, bool fused);

// Takes up to `start` leading and `stop` trailing `content` characters off each token.
std::unique_ptr<DetokenizeStep> MakeStripStep(std::string content, size_t start, size_t stop);

// The mark becomes a space, and nothing in the first token.
std::unique_ptr<DetokenizeStep> MakeMetaspaceStep(Metaspace settings);

// A space between tokens: what happens without a decoder.
std::unique_ptr<DetokenizeStep> MakeJoinStep();

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_DETOKENIZE_STEPS_H_
