// DraftRollback: takes slices with guesses back on one rank (SlicePlan::draft). K/V and planes need nothing: what a
// false guess left there is written over before it is read. Recurrent states have moved on, though, and the tails of
// blocks (WindowOp) are rings in which a later row has taken the place of an earlier one. Both are copied before the
// step and copied back for a slice whose guesses were not all accepted.
#ifndef MOE_ENGINE_CORE_DRAFT_ROLLBACK_H_
#define MOE_ENGINE_CORE_DRAFT_ROLLBACK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"
#include "loaders/model_spec.h"

namespace moe {

class DraftRollback {
 public:
  // Whether a model has anything to take back. The scheduler has to know (SpeculationOptions::rolls_back).
  static bool Needed(const ModelSpec& spec);

  // The snapshots of `states` from first_snapshot on are for this alone. All arguments outlive this.
  DraftRollback(const ModelSpec& spec, KvStore* kv, StateStore* states, int64_t first_snapshot);

  // Forgets the last step.
  void Begin() { num_saved_ = 0; }
  // Before the step: slice number `slice` of the plan will write positions [first_pos, first_pos + count) of a sequence
  // with these blocks.
  void Save(size_t slice, int64_t state_slot, std::span<const int32_t> blocks, int64_t first_pos, int64_t count);
  // After it. REQUIRES: saved since Begin.
  void Restore(size_t slice);

 private:
  struct Saved {
    size_t slice = 0;
    int64_t state_slot = -1;
    std::vector<int32_t> blocks;
    std::vector<float> tails;  // of each block, of each layer that has them
  };
  // Calls f(tail, floats) for every tail of the blocks.
  template <typename F>
  void ForEachTail(std::span<const int32_t> blocks, F f) const;

  KvStore* kv_;
  StateStore* states_;
  int64_t first_snapshot_;
  bool has_state_ = false;
  std::vector<int64_t> tail_layers_;
  std::vector<Saved> saved_;  // the first num_saved_ count; the rest keep their memory
  size_t num_saved_ = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_DRAFT_ROLLBACK_H_
