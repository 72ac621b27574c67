// Text from a stream of ids, as it becomes certain.
#ifndef MOE_LOADERS_TOKENIZER_INCREMENTAL_DETOKENIZER_H_
#define MOE_LOADERS_TOKENIZER_INCREMENTAL_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "loaders/tokenizer/token_decoder.h"
#include "loaders/tokenizer/tokenizer.h"

namespace moe {

// The texts of all Push() calls and of Finish(), joined, equal Tokenizer::Decode() of all ids. What was returned is
// never taken back and is always whole characters: the bytes of a cut character (at most 3) wait for the rest. With
// byte fallback a run of byte tokens waits for its end, since one bad byte makes the reference replace the whole run.
// The time of a Push() does not depend on how many came before.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive this.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool keep_special);

  // REQUIRES: Finish() was not called. An id that is not in the vocabulary gives no text.
  std::string Push(int32_t id);
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool keep_special_;
  DetokenizeStream stream_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_INCREMENTAL_DETOKENIZER_H_
