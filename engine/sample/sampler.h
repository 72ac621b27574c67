// Sampler: draws the next token of one sequence from a row of logits. Lives on the rank that owns the sequence.
//
// Order of processing:
//   1. what is reported (log-probability, rank, top) comes from the raw logits;
//   2. end ids become -inf while fewer than min_new_tokens were generated;
//   3. logit_bias is added;
//   4. repetition penalty for ids in prompt or output: a positive logit is divided by it, another multiplied;
//   5. presence and frequency penalties, for ids in the output only, are subtracted;
//   6. temperature 0: the largest, of equals the lowest id. Else
//   7. the maximum is subtracted and the rest divided by the temperature (at least 1e-30);
//   8. top_k (of equals at the border the lowest ids stay), then top_p over what top_k left, renormalised (the smallest
//      set of the most likely whose sum reaches top_p), then min_p (at least min_p times the largest probability);
//   9. inverse distribution function at UniformFor(seed, choice, k), in order of ids; with top_k in descending order.
// NaN counts as -inf everywhere. If nothing has a probability, the lowest id that rule 2 leaves is returned.
// The result depends on the arguments, the sequence's own tokens and (seed, choice, k) alone (N8).
#ifndef MOE_ENGINE_SAMPLE_SAMPLER_H_
#define MOE_ENGINE_SAMPLE_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sample/top_select.h"
#include "engine/schedule/step_plan.h"

namespace moe {

// Buffers that samplers of one thread share.
struct SamplerScratch {
  std::vector<float> logits;       // processed copy of the row
  std::vector<float> weights;      // of the row, softmax without the division
  std::vector<double> block_sums;  // of weights
  std::vector<Candidate> candidates;
};

class Sampler {
 public:
  Sampler(const SequenceInit& init, int64_t vocab_size);

  // Draws token number num_generated() and appends it to the history. `argmax` (lowest id of equals), `max` and
  // `log_sum_exp` are those of `logits`. Greedy without modifications reads one logit only.
  TokenInfo Next(std::span<const float> logits, int32_t argmax, float max, float log_sum_exp, SamplerScratch& scratch);

  // What `logits` say about `token`: logprob and rank, and the num_top most likely (-1: all).
  static TokenInfo Describe(std::span<const float> logits, float log_sum_exp, int32_t token, int32_t num_top,
                            SamplerScratch& scratch);

  int64_t num_generated() const { return num_generated_; }

 private:
  struct Seen {
    int32_t id = 0;
    int32_t generated = 0;  // how often in the output; 0: only in the prompt
  };
  void NoteGenerated(int32_t id);

  bool Modifies() const;
  // Steps 2–5 on scratch.logits.
  void Process(std::span<const float> logits, SamplerScratch& scratch) const;
  int32_t Draw(std::span<const float> values, float max, SamplerScratch& scratch) const;
  int32_t LowestAllowed(int64_t vocab) const;

  SamplingParams params_;
  int64_t vocab_size_;
  uint32_t choice_;
  int64_t min_new_tokens_;
  std::vector<int32_t> end_ids_;  // inside the vocabulary, ascending
  std::optional<int32_t> logprobs_;
  int64_t num_generated_;
  std::vector<Seen> seen_;  // by id; only with penalties
};

}  // namespace moe

#endif  // MOE_ENGINE_SAMPLE_SAMPLER_H_
