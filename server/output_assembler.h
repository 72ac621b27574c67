// OutputAssembler: the engine's token chunks of one request → deltas with text. Finds stop strings, drops what came
// after one, and keeps the account of tokens. One thread at a time.
#ifndef MOE_SERVER_OUTPUT_ASSEMBLER_H_
#define MOE_SERVER_OUTPUT_ASSEMBLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/text/text_output.h"
#include "server/delta.h"

namespace moe {

struct TextWanted {
  bool show = true;           // false: ids only; then text is made only to look for stop strings
  TextOutputOptions options;  // stop strings included
  bool NeedsTokenizer() const { return show || !options.stop.empty(); }
};

class OutputAssembler {
 public:
  // `tokenizer` outlives this; may be null unless wanted.NeedsTokenizer().
  OutputAssembler(const Tokenizer* tokenizer, const TextWanted& wanted, uint32_t num_choices);

  // A choice already finished gives an empty delta (no tokens, kNone): the engine's answer to StopChoice, or tokens
  // that were under way. `*stop_found`: a stop string ended the choice here, and the engine does not know yet.
  Delta Take(OutputChunk chunk, bool* stop_found);

  bool AllFinished() const { return unfinished_ == 0; }
  uint32_t generated_tokens() const { return generated_tokens_; }
  uint32_t cached_prompt_tokens() const { return cached_prompt_tokens_; }

 private:
  struct Choice {
    std::unique_ptr<TextOutput> text;
    bool finished = false;
  };

  const bool show_text_;
  std::vector<Choice> choices_;
  uint32_t unfinished_;
  uint32_t generated_tokens_ = 0;
  uint32_t cached_prompt_tokens_ = 0;
};

}  // namespace moe

#endif  // MOE_SERVER_OUTPUT_ASSEMBLER_H_
