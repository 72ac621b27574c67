#include "engine/cache/state_store.h"

#include <algorithm>

namespace moe {
namespace {

int64_t ConvFloats(const Mamba2Spec& spec) {
  return spec.conv_dim() * (spec.conv_kernel - 1);
}
int64_t SsmFloats(const Mamba2Spec& spec) {
  return spec.num_heads * spec.head_dim * spec.state_size;
}

}  // namespace

StatusOr<std::unique_ptr<StateStore>> StateStore::Create(const ModelSpec& spec, int64_t num_slots) {
  std::unique_ptr<StateStore> store(new StateStore);
  int64_t& floats = store->slot_floats_;
  for (const LayerSpec& layer : spec.layers) {
    const auto* mamba = std::get_if<Mamba2Spec>(&layer.mixer);
    store->conv_offset_.push_back(floats);
    if (mamba != nullptr) floats += ConvFloats(*mamba);
    store->ssm_offset_.push_back(floats);
    if (mamba != nullptr) floats += SsmFloats(*mamba);
  }
  MOE_ASSIGN_OR_RETURN(store->memory_,
                       LazyMemory::Create(static_cast<size_t>(floats * num_slots) * sizeof(float), "recurrent states"));
  return store;
}

int64_t StateStore::BytesPerSlot(const ModelSpec& spec) {
  int64_t floats = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* mamba = std::get_if<Mamba2Spec>(&layer.mixer)) floats += ConvFloats(*mamba) + SsmFloats(*mamba);
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

void StateStore::Clear(int64_t slot) {
  std::fill_n(floats() + slot * slot_floats_, slot_floats_, 0.0f);
}

}  // namespace moe
