// PrefillPacer: how many prompt tokens a step may carry beside sequences that decode, so that their inter-token latency
// stays near the one they have among themselves.
//
// What a row costs depends on the machine, the model and, with experts, on how many rows there are already; so the
// chunk is not computed but steered: a step that took longer than `slowdown` times a step of decoding sequences alone
// makes the next chunk smaller, a shorter one makes it larger. Results never depend on the chunks (numerics contract).
//
// A burst (half as many sequences without a token as there are that decode, or more) is not held back: they all wait
// for their first token, and the sooner all decode together the better for everybody.
#ifndef MOE_ENGINE_SCHEDULE_PREFILL_PACER_H_
#define MOE_ENGINE_SCHEDULE_PREFILL_PACER_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace moe {

class PrefillPacer {
 public:
  // slowdown > 1: the largest step time over that of decoding alone; 0: no limit. `largest`: of a chunk in any case.
  PrefillPacer(double slowdown, int64_t largest) : slowdown_(slowdown), largest_(largest) {}

  // Prompt tokens for a step with `decoding` sequences, while `pending` sequences have no token yet. At least
  // kSmallest.
  int64_t Allowance(int64_t decoding, int64_t pending) const;

  // A step with `decoding` rows of decoding sequences and `prefill` prompt tokens took so long.
  void Observe(int64_t decoding, int64_t prefill, double seconds);

  // Fewer tokens would read all the weights for next to no progress.
  static constexpr int64_t kSmallest = 16;

 private:
  // One for 1, 2–3, 4–7, … decoding sequences: steps of such sizes take about the same time.
  struct Load {
    double alone = 0;  // seconds of a step without prefill, smoothed; 0: none seen
    double chunk = 24;
  };
  static size_t Index(int64_t decoding);

  double slowdown_;
  int64_t largest_;
  std::array<Load, 16> loads_;
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_PREFILL_PACER_H_
