// What the engine loop tells the ranks to compute in one step, and what they answer. Plain data without pointers, so
// that it can cross a process border. Every rank gets a plan in every step, also an empty one: all ranks take part in
// every exchange.
#ifndef MOE_ENGINE_SCHEDULE_STEP_PLAN_H_
#define MOE_ENGINE_SCHEDULE_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/schedule/request.h"

namespace moe {

using SequenceId = uint64_t;

// A sequence that a rank meets for the first time (or again, after a preemption or a move). It comes with all tokens
// known so far; those after prompt_len were generated before and count as such for penalties and random numbers.
struct SequenceInit {
  SequenceId id = 0;
  int64_t prompt_len = 0;
  std::vector<int32_t> tokens;  // prompt, then tokens generated earlier
  uint32_t choice = 0;          // for the random numbers
  SamplingParams sampling;
  int64_t min_new_tokens = 0;
  std::vector<int32_t> end_ids;  // eos and stop ids, masked while fewer than min_new_tokens were generated
  std::optional<int32_t> logprobs;
  std::optional<int32_t> prompt_logprobs;
  bool routed_experts = false;
  int32_t state_slot = -1;      // of StateStore; -1 when the model has no recurrent mixer
  int32_t state_snapshot = -1;  // what the state begins with, a snapshot slot; -1: the state before position 0
  bool long_context = false;    // may become longer than ModelSpec::LongContextBorder: rotated for that throughout
};

// Positions [first_pos, first_pos + count) of a sequence. Never straddles prompt_len (N6).
//
// The last draft.size() of them hold guesses of tokens not drawn yet (speculative decoding). The row of the last known
// token and those of the guesses draw a token each, exactly as they would one step after the other, up to the first
// that is not the guess behind it: the guesses before it are accepted. K/V of the others is written over later. Where
// the model keeps more than that of a sequence (DraftRollback), a slice whose guesses were not all accepted leaves the
// state from before it, and its accepted positions are computed again.
struct SlicePlan {
  SequenceId id = 0;
  int64_t first_pos = 0;
  int64_t count = 0;
  std::vector<int32_t> new_blocks;  // appended to the sequence's block table before computing
  bool sample = false;              // the slice reaches the last known token: draw the next one
  std::vector<int32_t> draft;       // only with `sample`, behind prompt_len
  int32_t save_snapshot = -1;       // snapshot slot that gets the recurrent state behind the slice; -1: none
};

struct RankPlan {
  std::vector<SequenceId> drop;  // forget these (finished, cancelled, preempted, moved)
  std::vector<SequenceInit> admit;
  std::vector<SlicePlan> slices;  // at most one per sequence
  int64_t most_rows = 0;          // no rank computes more in this step; 0: not said. The same for all ranks
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<RankPlan> ranks;
};

struct SliceResult {
  SequenceId id = 0;
  std::vector<TokenInfo> tokens;  // when the slice sampled: the accepted guesses and one more
  // With prompt_logprobs: what the slice's rows say about prompt tokens. A row tells of the token at the position after
  // it; the first slice begins with the empty entry of position 0.
  std::vector<TokenInfo> prompt_tokens;
  std::vector<int32_t> expert_ids;  // with routed_experts: [KeptRows(), moe_layers, top_k]
  // Some logits that `tokens` or `prompt_tokens` come from are NaN, or all of a row are infinite: they mean nothing.
  bool not_finite = false;

  int64_t accepted() const { return tokens.empty() ? 0 : static_cast<int64_t>(tokens.size()) - 1; }
  // The result of another slice, nothing in it yet. Keeps its memory.
  void Reset(SequenceId sequence) {
    id = sequence;
    tokens.clear();
    prompt_tokens.clear();
    expert_ids.clear();
    not_finite = false;
  }
};

// Rows of a slice that belong to the sequence: without those of guesses that were not accepted.
inline int64_t KeptRows(const SlicePlan& plan, const SliceResult& result) {
  return plan.count - static_cast<int64_t>(plan.draft.size()) + result.accepted();
}

// What one rank sent to the others in a step.
struct ExchangeCounts {
  int64_t count_bytes = 0;     // numbers of rows that follow,
  int64_t dispatch_bytes = 0;  // rows for experts elsewhere, and
  int64_t combine_bytes = 0;   // results of experts here
  int64_t rows_sent = 0;
  int64_t exchanges = 0;  // calls that all ranks took part in
  // Time in them, waiting for the others included.
  double counts_seconds = 0;
  double dispatch_seconds = 0;
  double combine_seconds = 0;
};

struct RankResult {
  std::vector<SliceResult> slices;  // in the plan's order
  std::vector<int64_t>
      expert_tokens;          // by MoE layer, then expert: rows this rank's tokens sent to each expert this step
  int64_t rows_computed = 0;  // by the experts of this rank, for all ranks
  ExchangeCounts exchange;
  double compute_seconds = 0;  // of the step, without exchanges
};

struct StepResult {
  uint64_t step = 0;
  std::vector<RankResult> ranks;
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_STEP_PLAN_H_
