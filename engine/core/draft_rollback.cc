#include "engine/core/draft_rollback.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace moe {

bool DraftRollback::Needed(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
    const CacheShape shape = CacheOf(layer, spec.hidden_size);
    return shape.state > 0 || shape.tail > 0;
  });
}

DraftRollback::DraftRollback(const ModelSpec& spec, KvStore* kv, StateStore* states, int64_t first_snapshot)
    : kv_(kv), states_(states), first_snapshot_(first_snapshot), has_state_(StateStore::BytesPerSlot(spec) > 0) {
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (CacheOf(spec.layers[l], spec.hidden_size).tail > 0) tail_layers_.push_back(static_cast<int64_t>(l));
  }
}

template <typename F>
void DraftRollback::ForEachTail(std::span<const int32_t> blocks, F f) const {
  for (int64_t l : tail_layers_) {
    const KvLayer& layer = kv_->layer(l);
    for (int32_t block : blocks) f(layer.tail + block * layer.tail_size, layer.tail_size);
  }
}

void DraftRollback::Save(size_t slice, int64_t state_slot, std::span<const int32_t> blocks, int64_t first_pos,
                         int64_t count) {
  if (num_saved_ == saved_.size()) saved_.emplace_back();
  const auto snapshot = first_snapshot_ + static_cast<int64_t>(num_saved_);
  Saved& saved = saved_[num_saved_++];
  saved.slice = slice;
  saved.state_slot = state_slot;
  if (has_state_) states_->Save(state_slot, snapshot);
  if (tail_layers_.empty()) return;
  const int64_t first = first_pos / kKvBlockTokens;
  const int64_t last = (first_pos + count - 1) / kKvBlockTokens;
  saved.blocks.assign(blocks.begin() + first, blocks.begin() + last + 1);
  saved.tails.clear();
  ForEachTail(saved.blocks,
              [&](const float* tail, int64_t floats) { saved.tails.insert(saved.tails.end(), tail, tail + floats); });
}

void DraftRollback::Restore(size_t slice) {
  for (size_t i = 0; i < num_saved_; ++i) {
    const Saved& saved = saved_[i];
    if (saved.slice != slice) continue;
    if (has_state_) states_->Restore(first_snapshot_ + static_cast<int64_t>(i), saved.state_slot);
    const float* from = saved.tails.data();
    ForEachTail(saved.blocks, [&](float* tail, int64_t floats) {
      std::copy_n(from, floats, tail);
      from += floats;
    });
    return;
  }
  MOE_CHECK(false) << "slice " << slice << " was not saved";
}

}  // namespace moe
