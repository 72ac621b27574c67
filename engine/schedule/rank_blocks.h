// RankBlocks: the K/V blocks of one rank: BlockPool and PrefixIndex under the rules that tie them together.
//
//   free   no reference                        in the pool's list
//   used   referenced by sequences             (and by the index, if published)
//   idle   referenced by the index alone       a cached prefix; evicted when the free list is empty
//
// available = free + idle: what Allocate can still give.
#ifndef MOE_ENGINE_SCHEDULE_RANK_BLOCKS_H_
#define MOE_ENGINE_SCHEDULE_RANK_BLOCKS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/prefix_index.h"
#include "engine/cache/state_snapshots.h"

namespace moe {

// The blocks that hold a prefix, first to last, and the entry of the last one.
struct PrefixMatch {
  std::vector<int32_t> blocks;
  PrefixIndex::EntryId entry = PrefixIndex::kRoot;
  int32_t snapshot = -1;  // slot of the recurrent state behind the last block
};

class RankBlocks {
 public:
  // snapshot_slots > 0: a prefix counts up to a block with a snapshot of the recurrent state.
  RankBlocks(int64_t num_blocks, int64_t block_tokens, int64_t snapshot_slots = 0);

  int64_t total() const { return pool_.size(); }
  int64_t available() const { return pool_.num_free() + index_.num_idle(); }
  int64_t used() const { return total() - available(); }
  int64_t cached() const { return index_.num_idle(); }
  int32_t refs(int32_t block) const { return pool_.refs(block); }
  bool IsPublished(int32_t block) const { return index_.Contains(block); }

  // The longest cached prefix of `tokens`, at most max_blocks long. Changes nothing.
  PrefixMatch Match(std::span<const int32_t> tokens, std::string_view salt, int64_t max_blocks) const;
  // How many of the blocks are idle, that is: would leave `available` when taken.
  int64_t CountIdle(std::span<const int32_t> blocks) const;
  // A reference to each for a sequence.
  void Acquire(std::span<const int32_t> blocks);

  // REQUIRES: available() > 0.
  int32_t Allocate();
  // Gives a sequence's references back. The last blocks become idle first, so that they are evicted before the prefixes
  // they depend on.
  void Release(std::span<const int32_t> blocks);

  // The sequence's block is full and computed: offers it under `parent`. Returns the entry for these tokens and its
  // block, which may be an equal one of another sequence.
  PrefixIndex::Hit Publish(PrefixIndex::EntryId parent, std::string_view salt, std::span<const int32_t> tokens,
                           int32_t block);

  StateSnapshots& snapshots() { return snapshots_; }
  const StateSnapshots& snapshots() const { return snapshots_; }

  // Frees every idle block; returns how many.
  int64_t Flush();

 private:
  // The oldest idle block, out of the index; -1 when none is idle.
  int32_t Evict();

  int64_t block_tokens_;
  bool needs_snapshots_;
  BlockPool pool_;
  PrefixIndex index_;
  StateSnapshots snapshots_;
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_RANK_BLOCKS_H_
