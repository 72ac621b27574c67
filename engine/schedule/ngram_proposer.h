// NgramProposer: guesses what a sequence says next by looking its last tokens up in itself (prompt lookup decoding):
// where the same n tokens stood before, most recently, the tokens behind them are the guess; longer runs first. One per
// sequence.
//
// The runs are in a hash table of token positions without chains: a later run takes the place of an earlier one with
// the same slot, equal or not, and what is found is compared token by token. So a token costs O(max_n), and memory is
// at most 32 bytes per token and length n and never above 256 KiB; in sequences too long for that old runs are
// forgotten.
#ifndef MOE_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
#define MOE_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace moe {

class NgramProposer {
 public:
  // REQUIRES: 1 <= min_n <= max_n.
  NgramProposer(int64_t min_n, int64_t max_n);

  // Puts at most `count` tokens that may follow `tokens` into *guess; none when its end has not been seen before. A
  // guess that reaches the end of `tokens` goes on with itself: a period repeats. REQUIRES: `tokens` begins with those
  // of the last call.
  void Propose(std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>* guess);

 private:
  // Calls f(n, slot) for every run [end - n, end) of an allowed length, shortest first.
  template <typename F>
  void ForEachRun(std::span<const int32_t> tokens, int64_t end, F f) const;
  void Index(std::span<const int32_t> tokens);

  int64_t min_n_;
  int64_t max_n_;
  std::vector<int32_t> table_;  // by slot: the position behind a run; 0: none
  int64_t indexed_ = 0;         // runs that end before this position or at it are in the table
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
