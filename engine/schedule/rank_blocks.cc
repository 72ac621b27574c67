#include "engine/schedule/rank_blocks.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace moe {

RankBlocks::RankBlocks(int64_t num_blocks, int64_t block_tokens, int64_t snapshot_slots)
    : block_tokens_(block_tokens),
      needs_snapshots_(snapshot_slots > 0),
      pool_(num_blocks),
      index_(num_blocks, block_tokens),
      snapshots_(snapshot_slots) {}

PrefixMatch RankBlocks::Match(std::span<const int32_t> tokens, std::string_view salt, int64_t max_blocks) const {
  PrefixMatch match;
  PrefixMatch usable;  // up to the last block with a snapshot
  const int64_t full = std::min<int64_t>(max_blocks, static_cast<int64_t>(tokens.size()) / block_tokens_);
  for (int64_t b = 0; b < full; ++b) {
    const PrefixIndex::Hit hit = index_.Find(match.entry, salt, tokens.subspan(b * block_tokens_, block_tokens_));
    if (hit.block < 0) break;
    match.blocks.push_back(hit.block);
    match.entry = hit.entry;
    if (!needs_snapshots_) continue;
    match.snapshot = snapshots_.Find(hit.block);
    if (match.snapshot >= 0) usable = match;
  }
  return needs_snapshots_ ? usable : match;
}

int64_t RankBlocks::CountIdle(std::span<const int32_t> blocks) const {
  return std::count_if(blocks.begin(), blocks.end(), [this](int32_t b) { return index_.IsIdle(b); });
}

void RankBlocks::Acquire(std::span<const int32_t> blocks) {
  for (int32_t b : blocks) {
    if (index_.IsIdle(b)) index_.SetBusy(b);
    pool_.AddRef(b);
  }
}

int32_t RankBlocks::Allocate() {
  if (pool_.num_free() == 0) {
    const int32_t evicted = Evict();
    MOE_CHECK(evicted >= 0) << "no block is available";
    MOE_CHECK_EQ(pool_.Release(evicted), 0);
  }
  return pool_.Take();
}

void RankBlocks::Release(std::span<const int32_t> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const int32_t b = blocks[i];
    if (pool_.Release(b) == 1 && index_.Contains(b)) index_.SetIdle(b);
  }
}

PrefixIndex::Hit RankBlocks::Publish(PrefixIndex::EntryId parent, std::string_view salt,
                                     std::span<const int32_t> tokens, int32_t block) {
  const PrefixIndex::Hit hit = index_.Insert(parent, salt, tokens, block);
  if (hit.block == block) pool_.AddRef(block);
  return hit;
}

int32_t RankBlocks::Evict() {
  const int32_t block = index_.EvictOldest();
  if (block >= 0) snapshots_.Drop(block);
  return block;
}

int64_t RankBlocks::Flush() {
  int64_t freed = 0;
  for (int32_t b; (b = Evict()) >= 0; ++freed) MOE_CHECK_EQ(pool_.Release(b), 0);
  return freed;
}

}  // namespace moe
