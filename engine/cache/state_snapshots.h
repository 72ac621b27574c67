// StateSnapshots: which saved recurrent state belongs to which block of the prefix index, as integers. A snapshot of a
// block is the state of a sequence right behind that block's last token; a model with recurrent mixers can reuse a
// prefix only up to a block that has one. Engine thread only.
//
// A slot is free, reserved (a step is about to fill it) or attached to a block. When a slot is wanted and none is free,
// the attached one that was not used for longest gives way; its block stays in the index without a snapshot.
#ifndef MOE_ENGINE_CACHE_STATE_SNAPSHOTS_H_
#define MOE_ENGINE_CACHE_STATE_SNAPSHOTS_H_

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace moe {

class StateSnapshots {
 public:
  explicit StateSnapshots(int64_t num_slots);

  // The slot of a block; -1 without one.
  int32_t Find(int32_t block) const;
  // Its turn to give way is last now. REQUIRES: Find(block) >= 0.
  void Touch(int32_t block);

  // A slot for a state that is about to be saved; -1 when every slot is reserved.
  int32_t Reserve();
  // The state is saved. A block that has a snapshot already keeps it, and the slot becomes free.
  void Attach(int32_t slot, int32_t block);
  // It will not be saved after all.
  void Cancel(int32_t slot);
  // The block left the index.
  void Drop(int32_t block);

  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_attached() const { return static_cast<int64_t>(by_age_.size()); }

 private:
  struct Entry {
    int32_t slot = -1;
    std::list<int32_t>::iterator age;
  };
  std::vector<int32_t> free_;
  std::list<int32_t> by_age_;  // blocks with a snapshot, longest unused first
  std::unordered_map<int32_t, Entry> by_block_;
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_STATE_SNAPSHOTS_H_
