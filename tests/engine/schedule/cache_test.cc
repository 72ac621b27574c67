// BlockPool, PrefixIndex and RankBlocks.
#include <random>
#include <set>

#include "engine/cache/block_pool.h"
#include "engine/cache/prefix_index.h"
#include "engine/schedule/rank_blocks.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

std::vector<int32_t> Tokens(int64_t n, int32_t first = 0) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(first + static_cast<int32_t>(i));
  return out;
}

TEST(BlockPool, CountsReferences) {
  BlockPool pool(3);
  std::set<int32_t> taken = {pool.Take(), pool.Take(), pool.Take()};
  EXPECT_EQ(taken, (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.num_free(), 0);
  pool.AddRef(1);
  EXPECT_EQ(pool.Release(1), 1);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.Release(1), 0);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.Take(), 1);
  EXPECT_DEATH(
      {
        pool.Release(2);
        pool.Release(2);
      },
      "free");
}

TEST(PrefixIndex, FindsByParentTokensAndSalt) {
  PrefixIndex index(8, 4);
  const auto a = Tokens(4), b = Tokens(4, 10);
  const PrefixIndex::Hit ha = index.Insert(PrefixIndex::kRoot, "", a, 3);
  EXPECT_EQ(ha.block, 3);
  const PrefixIndex::Hit hb = index.Insert(ha.entry, "", b, 5);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, "", a).block, 3);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, "x", a).block, -1) << "another salt";
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, "", b).block, -1) << "same tokens, another prefix";
  EXPECT_EQ(index.Find(ha.entry, "", b).block, 5);
  EXPECT_EQ(index.Find(hb.entry, "", b).block, -1);
  // A second block with the same content stays outside.
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, "", a, 6).block, 3);
  EXPECT_FALSE(index.Contains(6));
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, "x", a, 6).block, 6);
}

TEST(PrefixIndex, EvictsTheLongestIdleAndForgetsIt) {
  PrefixIndex index(4, 2);
  const auto t0 = Tokens(2), t1 = Tokens(2, 5), t2 = Tokens(2, 9);
  index.Insert(PrefixIndex::kRoot, "", t0, 0);
  index.Insert(PrefixIndex::kRoot, "", t1, 1);
  const auto child_of_0 = index.Insert(index.Find(PrefixIndex::kRoot, "", t0).entry, "", t2, 2);
  EXPECT_EQ(index.EvictOldest(), -1);
  index.SetIdle(0);
  index.SetIdle(1);
  index.SetIdle(2);
  index.SetBusy(1);
  index.SetIdle(1);
  EXPECT_EQ(index.num_idle(), 3);
  EXPECT_EQ(index.EvictOldest(), 0);
  EXPECT_EQ(index.Find(PrefixIndex::kRoot, "", t0).block, -1);
  // The same tokens again are a new entry: what followed the old one is not found under it.
  const auto again = index.Insert(PrefixIndex::kRoot, "", t0, 3);
  EXPECT_EQ(index.Find(again.entry, "", t2).block, -1);
  EXPECT_NE(child_of_0.entry, again.entry);
  EXPECT_EQ(index.EvictOldest(), 2);
  EXPECT_EQ(index.EvictOldest(), 1);
  EXPECT_EQ(index.EvictOldest(), -1);
}

TEST(RankBlocks, LastsBlocksOfAPrefixGoFirst) {
  RankBlocks blocks(4, 2);
  const auto t = Tokens(6);
  std::vector<int32_t> table = {blocks.Allocate(), blocks.Allocate(), blocks.Allocate()};
  PrefixIndex::EntryId entry = PrefixIndex::kRoot;
  for (int64_t b = 0; b < 3; ++b) {
    entry = blocks.Publish(entry, "", std::span<const int32_t>(t).subspan(2 * b, 2), table[b]).entry;
  }
  EXPECT_EQ(blocks.used(), 3);
  blocks.Release(table);
  EXPECT_EQ(blocks.used(), 0);
  EXPECT_EQ(blocks.cached(), 3);
  EXPECT_EQ(blocks.Match(t, "", 9).blocks, table);
  EXPECT_EQ(blocks.Match(t, "", 2).blocks.size(), 2u);
  blocks.Allocate();  // the free one
  EXPECT_EQ(blocks.Match(t, "", 9).blocks.size(), 3u);
  blocks.Allocate();
  EXPECT_EQ(blocks.Match(t, "", 9).blocks.size(), 2u);
  blocks.Allocate();
  EXPECT_EQ(blocks.Match(t, "", 9).blocks.size(), 1u);
  // One in use is never evicted.
  const PrefixMatch match = blocks.Match(t, "", 9);
  EXPECT_EQ(blocks.CountIdle(match.blocks), 1);
  blocks.Acquire(match.blocks);
  EXPECT_EQ(blocks.available(), 0);
  EXPECT_EQ(blocks.Flush(), 0);
  blocks.Release(match.blocks);
  EXPECT_EQ(blocks.Flush(), 1);
  EXPECT_EQ(blocks.available(), 1);
}

TEST(RankBlocks, RandomUseKeepsTheCounts) {
  std::mt19937 gen(3);
  constexpr int64_t kBlocks = 24;
  RankBlocks blocks(kBlocks, 2);
  std::vector<std::vector<int32_t>> holders;
  for (int round = 0; round < 20000; ++round) {
    if (gen() % 2 == 0 || holders.empty()) {
      const int64_t full = 1 + gen() % 4;
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < 2 * full; ++i) tokens.push_back(gen() % 2);
      PrefixMatch match = blocks.Match(tokens, "", full);
      const int64_t needed = full - static_cast<int64_t>(match.blocks.size());
      if (needed > blocks.available() - blocks.CountIdle(match.blocks)) continue;
      blocks.Acquire(match.blocks);
      const auto cached = static_cast<int64_t>(match.blocks.size());
      for (int64_t b = cached; b < full; ++b) match.blocks.push_back(blocks.Allocate());
      for (int64_t b = cached; b < full; ++b) {
        match.entry =
            blocks.Publish(match.entry, "", std::span<const int32_t>(tokens).subspan(2 * b, 2), match.blocks[b]).entry;
      }
      holders.push_back(std::move(match.blocks));
    } else {
      const size_t at = gen() % holders.size();
      blocks.Release(holders[at]);
      holders.erase(holders.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::vector<int32_t> refs(kBlocks);
    for (const auto& h : holders) {
      for (int32_t b : h) ++refs[b];
    }
    int64_t used = 0;
    for (int64_t b = 0; b < kBlocks; ++b) {
      used += refs[b] > 0 ? 1 : 0;
      ASSERT_EQ(blocks.refs(static_cast<int32_t>(b)), refs[b] + (blocks.IsPublished(static_cast<int32_t>(b)) ? 1 : 0));
    }
    ASSERT_EQ(blocks.used(), used);
  }
}

}  // namespace
}  // namespace moe
