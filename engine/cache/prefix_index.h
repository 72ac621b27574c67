// PrefixIndex: finds the block that already holds a given run of tokens after a given prefix. Integers only; which
// references a block has is BlockPool's business. Engine thread only.
//
// An entry is one full block: its tokens, the entry of the block before it (kRoot for a prompt's first block, which
// also compares the salt) and the block. Entry ids are never used twice, and tokens are compared on a hit, so equal
// entries mean equal prefixes; a hash only finds the candidates. When an entry goes, entries that follow it can no
// longer be found and age out.
//
// An entry is idle while no sequence uses its block. Idle entries stand in a queue by the time they became idle; the
// oldest is evicted first.
#ifndef MOE_ENGINE_CACHE_PREFIX_INDEX_H_
#define MOE_ENGINE_CACHE_PREFIX_INDEX_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

class PrefixIndex {
 public:
  using EntryId = uint64_t;
  static constexpr EntryId kRoot = 0;

  PrefixIndex(int64_t num_blocks, int64_t block_tokens);

  struct Hit {
    EntryId entry = kRoot;
    int32_t block = -1;  // -1: none
  };
  // `tokens` are one block's. The salt counts at kRoot only.
  Hit Find(EntryId parent, std::string_view salt, std::span<const int32_t> tokens) const;

  // Adds the block, not idle, unless the same entry is there already (then `block` stays outside the index).
  // Returns the entry that is there now; hit.block == block if it was added. REQUIRES: !Contains(block).
  Hit Insert(EntryId parent, std::string_view salt, std::span<const int32_t> tokens, int32_t block);

  bool Contains(int32_t block) const { return entries_[block].id != kRoot; }
  bool IsIdle(int32_t block) const { return entries_[block].idle; }
  int64_t num_idle() const { return num_idle_; }

  // No sequence uses the block now. REQUIRES: Contains(block), not idle.
  void SetIdle(int32_t block);
  // REQUIRES: idle.
  void SetBusy(int32_t block);
  // Removes the entry that has been idle longest and returns its block; -1 when none is idle.
  int32_t EvictOldest();

 private:
  struct Entry {
    EntryId id = kRoot;  // kRoot: the block is not in the index
    EntryId parent = kRoot;
    uint64_t hash = 0;
    int32_t chain = -1;  // next block of the bucket
    int32_t older = -1;  // neighbours in the idle queue
    int32_t newer = -1;
    bool idle = false;
  };

  uint64_t Hash(EntryId parent, std::string_view salt, std::span<const int32_t> tokens) const;
  Hit FindHashed(uint64_t hash, EntryId parent, std::string_view salt, std::span<const int32_t> tokens) const;

  int64_t block_tokens_;
  std::vector<Entry> entries_;      // by block
  std::vector<int32_t> tokens_;     // [blocks, block_tokens]
  std::vector<std::string> salts_;  // by block; of first blocks only
  std::vector<int32_t> buckets_;    // first block of each chain
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
  int64_t num_idle_ = 0;
  EntryId next_id_ = 1;
};

}  // namespace moe

#endif  // MOE_ENGINE_CACHE_PREFIX_INDEX_H_
