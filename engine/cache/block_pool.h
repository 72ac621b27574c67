// BlockPool: which blocks of one rank's K/V cache are taken, as integers. A block is returned to the free list when its
// last reference goes. Engine thread only.
#ifndef MOE_ENGINE_CACHE_BLOCK_POOL_H_
#define MOE_ENGINE_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <vector>

namespace moe {

class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t size() const { return static_cast<int64_t>(refs_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int32_t refs(int32_t block) const { return refs_[block]; }

  // A free block with one reference. REQUIRES: num_free() > 0.
  int32_t Take();
  // REQUIRES: refs(block) > 0.
  void AddRef(int32_t block);
  // Returns the references left; with none the block is free. REQUIRES: refs(block) > 0.
  int32_t Release(int32_t block);

 private:
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;  // last freed first: its memory is likeliest to be in a cache
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_BLOCK_POOL_H_
