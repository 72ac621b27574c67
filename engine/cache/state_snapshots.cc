#include "engine/cache/state_snapshots.h"

#include "parallel/base/check.h"

namespace moe {

StateSnapshots::StateSnapshots(int64_t num_slots) {
  for (int64_t s = num_slots - 1; s >= 0; --s) free_.push_back(static_cast<int32_t>(s));
}

int32_t StateSnapshots::Find(int32_t block) const {
  const auto it = by_block_.find(block);
  return it == by_block_.end() ? -1 : it->second.slot;
}

void StateSnapshots::Touch(int32_t block) {
  by_age_.splice(by_age_.end(), by_age_, by_block_.at(block).age);
}

int32_t StateSnapshots::Reserve() {
  if (free_.empty()) {
    if (by_age_.empty()) return -1;
    Drop(by_age_.front());
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateSnapshots::Attach(int32_t slot, int32_t block) {
  if (by_block_.contains(block)) {
    Touch(block);
    free_.push_back(slot);
    return;
  }
  by_block_[block] = {slot, by_age_.insert(by_age_.end(), block)};
}

void StateSnapshots::Cancel(int32_t slot) {
  MOE_CHECK(slot >= 0);
  free_.push_back(slot);
}

void StateSnapshots::Drop(int32_t block) {
  const auto it = by_block_.find(block);
  if (it == by_block_.end()) return;
  free_.push_back(it->second.slot);
  by_age_.erase(it->second.age);
  by_block_.erase(it);
}

}  // namespace moe
