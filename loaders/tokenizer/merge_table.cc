#include "loaders/tokenizer/merge_table.h"

#include <bit>

namespace moe {

void MergeTable::Reserve(size_t num_merges) {
  const size_t capacity = std::bit_ceil(2 * num_merges + 2);
  slots_.assign(capacity, Slot());
  mask_ = capacity - 1;
}

void MergeTable::Add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t i = Index(key);
  while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

}  // namespace moe
