// TextOutput: turns the token stream of one choice into text that may be sent: whole UTF-8 characters only, nothing of
// a stop string, nothing that could still become one. One object a choice, one thread at a time.
#ifndef MOE_ENGINE_TEXT_TEXT_OUTPUT_H_
#define MOE_ENGINE_TEXT_TEXT_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/stop_matcher.h"
#include "loaders/tokenizer/incremental_detokenizer.h"

namespace moe {

struct TextOutputOptions {
  bool keep_special_tokens = false;
  std::vector<std::string> stop;  // none empty
  bool include_stop = false;      // keep the matched stop string in the text
  int64_t min_tokens = 0;         // a stop string that these first tokens complete does not count
};

class TextOutput {
 public:
  // `tokenizer` outlives this.
  TextOutput(const Tokenizer& tokenizer, TextOutputOptions options);

  // The next token. `is_end`: it is the eos or stop token that ended the choice: its text is never shown, also where
  // special tokens are kept. Returns the text that may be sent now.
  std::string Push(int32_t token, bool is_end);

  // The choice ended without a stop string: what was held back. May still find a stop string (one that waited for a
  // longer one which began before it), so look at stopped() afterwards.
  std::string Finish();

  // A stop string was found: Push's and Finish's results are empty from now on.
  bool stopped() const { return stopped_; }
  const std::string& stop_match() const { return stop_match_; }

 private:
  std::string Take(StopMatcher::Result result);
  bool LooksForStops() const { return tokens_ > options_.min_tokens; }

  IncrementalDetokenizer detokenizer_;
  TextOutputOptions options_;
  StopMatcher matcher_;
  int64_t tokens_ = 0;
  bool stopped_ = false;
  std::string stop_match_;
};

}  // namespace moe

#endif  // MOE_ENGINE_TEXT_TEXT_OUTPUT_H_
