#include "engine/cache/block_pool.h"

#include "parallel/base/check.h"

namespace moe {

BlockPool::BlockPool(int64_t num_blocks) : refs_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

int32_t BlockPool::Take() {
  MOE_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  MOE_CHECK_EQ(refs_[block], 0);
  refs_[block] = 1;
  return block;
}

void BlockPool::AddRef(int32_t block) {
  MOE_CHECK(refs_[block] > 0) << "block " << block << " is free";
  ++refs_[block];
}

int32_t BlockPool::Release(int32_t block) {
  MOE_CHECK(refs_[block] > 0) << "block " << block << " is free";
  if (--refs_[block] == 0) free_.push_back(block);
  return refs_[block];
}

}  // namespace moe
