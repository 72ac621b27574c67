// Sequence: one choice of a request, as the scheduler sees it. `num_computed` is the only progress state: the tokens
// below it are in the caches of `rank`, the others wait.
#ifndef MOE_ENGINE_SCHEDULE_SEQUENCE_H_
#define MOE_ENGINE_SCHEDULE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cache/prefix_index.h"
#include "engine/schedule/drafter.h"
#include "engine/schedule/request.h"
#include "engine/schedule/step_plan.h"

namespace moe {

struct Sequence {
  SequenceId id = 0;  // ascending by arrival, then choice
  std::shared_ptr<const Request> request;
  uint32_t choice = 0;
  SequenceId leader = 0;  // choice 0 of the same request, whose prompt blocks this one can share; 0: is one itself

  std::vector<int32_t> tokens;  // prompt, then what was generated
  int64_t prompt_len = 0;
  bool long_context = false;  // SequenceInit's
  std::string cache_salt;     // the request's; where there are long contexts, apart for those
  int64_t num_computed = 0;

  bool wants_prompt_logprobs = false;  // and has not got them yet
  bool started = false;                // was admitted at least once
  int64_t cached_prompt_tokens = 0;    // of the first admission

  // While running:
  int rank = -1;  // -1: waiting
  int32_t state_slot = -1;
  std::vector<int32_t> blocks;
  int64_t sent_blocks = 0;                               // that the rank knows of
  int64_t published_blocks = 0;                          // whose place in the prefix index is known
  PrefixIndex::EntryId last_entry = PrefixIndex::kRoot;  // of the last of them
  bool announced = false;                                // the rank has its SequenceInit

  int32_t restore_snapshot = -1;  // of the state behind its cached prefix; until announced

  // Speculative decoding (SlicePlan::draft):
  std::unique_ptr<Drafter> drafter;  // from its first decoding step on
  std::vector<int32_t> draft;        // guesses in the slice being planned
  int64_t accepted = 0;              // of them, by the step's result
  int64_t replay = 0;                // tokens before the last known one to compute again, their state having gone back

  int64_t planned = 0;         // tokens of its slice in the step being planned, guesses included
  int32_t save_snapshot = -1;  // reserved for the state behind that slice

  int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  bool running() const { return rank >= 0; }
  // Only the last known token is left to compute (and what is to be replayed), and it is a generated one.
  bool decoding() const { return num_computed >= prompt_len && known() - num_computed == 1 + replay; }
};

// Whom the scheduler serves first: higher priority, then earlier arrival, then lower choice.
struct SequenceOrder {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->request->priority != b->request->priority) return a->request->priority > b->request->priority;
    return a->id < b->id;
  }
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_SEQUENCE_H_
