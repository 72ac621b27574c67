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
  static StatusOr<std::unique_ptr<StateStore>> Create(const ModelSpec& spec, int64_t num_slots);

  // Bytes of one slot over all layers; 0 for models without recurrent mixers.
  static int64_t BytesPerSlot(const ModelSpec& spec);

  // Puts a slot into the state before position 0.
  void Clear(int64_t slot);

  // REQUIRES: layer `l` has a recurrent mixer. Layouts: MixerSlice in engine/device/ops.h.
  float* conv_state(int64_t layer, int64_t slot) { return floats() + slot * slot_floats_ + conv_offset_[layer]; }
  float* ssm_state(int64_t layer, int64_t slot) { return floats() + slot * slot_floats_ + ssm_offset_[layer]; }

 private:
  StateStore() = default;
  float* floats() { return reinterpret_cast<float*>(memory_.data()); }

  int64_t slot_floats_ = 0;
  std::vector<int64_t> conv_offset_;  // by model layer, in a slot
  std::vector<int64_t> ssm_offset_;
  LazyMemory memory_;  // [slots, slot_floats] of float
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_STATE_STORE_H_
