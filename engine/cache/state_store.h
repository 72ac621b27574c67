// StateStore: the fixed-size recurrent and convolution states of one rank, a slot per running sequence.
#ifndef MOE_ENGINE_CACHE_STATE_STORE_H_
#define MOE_ENGINE_CACHE_STATE_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/tensor/lazy_memory.h"
#include "loaders/model_spec.h"
#include "parallel/base/status.h"

namespace moe {

class StateStore {
 public:
  // `num_slots` states of running sequences and `num_snapshots` saved ones.
  static StatusOr<std::unique_ptr<StateStore>> Create(const ModelSpec& spec, int64_t num_slots, int64_t num_snapshots);

  // Bytes of one slot over all layers; 0 for models without recurrent mixers.
  static int64_t BytesPerSlot(const ModelSpec& spec);

  // Puts a slot into the state before position 0.
  void Clear(int64_t slot);
  // Copies a running state to a snapshot slot and back.
  void Save(int64_t slot, int64_t snapshot);
  void Restore(int64_t snapshot, int64_t slot);

  // The floats of a layer with a recurrent mixer (layouts: MixerSlice in engine/device/ops.h).
  float* state(int64_t layer, int64_t slot) { return floats() + slot * slot_floats_ + offset_[layer]; }

 private:
  StateStore() = default;
  float* floats() { return reinterpret_cast<float*>(memory_.data()); }

  int64_t slot_floats_ = 0;
  int64_t num_slots_ = 0;
  std::vector<int64_t> offset_;  // by model layer, in a slot
  LazyMemory memory_;            // [slots, then snapshots; slot_floats] of float
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_STATE_STORE_H_
