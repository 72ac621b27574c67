#include "engine/cache/state_store.h"

#include <algorithm>

namespace moe {

StatusOr<std::unique_ptr<StateStore>> StateStore::Create(const ModelSpec& spec, int64_t num_slots,
                                                         int64_t num_snapshots) {
  std::unique_ptr<StateStore> store(new StateStore);
  store->num_slots_ = num_slots;
  int64_t& floats = store->slot_floats_;
  for (const LayerSpec& layer : spec.layers) {
    store->offset_.push_back(floats);
    floats += CacheOf(layer, spec.hidden_size).state;
  }
  MOE_ASSIGN_OR_RETURN(store->memory_,
                       LazyMemory::Create(static_cast<size_t>(floats * (num_slots + num_snapshots)) * sizeof(float),
                                          "recurrent states"));
  return store;
}

int64_t StateStore::BytesPerSlot(const ModelSpec& spec) {
  int64_t floats = 0;
  for (const LayerSpec& layer : spec.layers) floats += CacheOf(layer, spec.hidden_size).state;
  return floats * static_cast<int64_t>(sizeof(float));
}

void StateStore::Save(int64_t slot, int64_t snapshot) {
  std::copy_n(floats() + slot * slot_floats_, slot_floats_, floats() + (num_slots_ + snapshot) * slot_floats_);
}

void StateStore::Restore(int64_t snapshot, int64_t slot) {
  std::copy_n(floats() + (num_slots_ + snapshot) * slot_floats_, slot_floats_, floats() + slot * slot_floats_);
}

void StateStore::Clear(int64_t slot) {
  std::fill_n(floats() + slot * slot_floats_, slot_floats_, 0.0f);
}

}  // namespace moe
