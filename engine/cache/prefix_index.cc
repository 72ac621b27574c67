#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <bit>

#include "parallel/base/check.h"

namespace moe {
namespace {

// One round of multiply and fold; only speed depends on its quality.
inline uint64_t Mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

}  // namespace

PrefixIndex::PrefixIndex(int64_t num_blocks, int64_t block_tokens)
    : block_tokens_(block_tokens),
      entries_(num_blocks),
      tokens_(num_blocks * block_tokens),
      salts_(num_blocks),
      buckets_(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2 * num_blocks, 2))), -1) {}

uint64_t PrefixIndex::Hash(EntryId parent, std::string_view salt, std::span<const int32_t> tokens) const {
  uint64_t h = Mix(0x2545F4914F6CDD1Dull, parent);
  if (parent == kRoot) {
    for (unsigned char c : salt) h = Mix(h, c);
  }
  for (int32_t t : tokens) h = Mix(h, static_cast<uint32_t>(t));
  return h ^ (h >> 32);
}

PrefixIndex::Hit PrefixIndex::FindHashed(uint64_t hash, EntryId parent, std::string_view salt,
                                         std::span<const int32_t> tokens) const {
  for (int32_t b = buckets_[hash & (buckets_.size() - 1)]; b >= 0; b = entries_[b].chain) {
    const Entry& e = entries_[b];
    if (e.hash != hash || e.parent != parent) continue;
    if (parent == kRoot && salts_[b] != salt) continue;
    if (std::equal(tokens.begin(), tokens.end(), tokens_.begin() + b * block_tokens_)) return {e.id, b};
  }
  return {};
}

PrefixIndex::Hit PrefixIndex::Find(EntryId parent, std::string_view salt, std::span<const int32_t> tokens) const {
  MOE_CHECK_EQ(static_cast<int64_t>(tokens.size()), block_tokens_);
  return FindHashed(Hash(parent, salt, tokens), parent, salt, tokens);
}

PrefixIndex::Hit PrefixIndex::Insert(EntryId parent, std::string_view salt, std::span<const int32_t> tokens,
                                     int32_t block) {
  MOE_CHECK_EQ(static_cast<int64_t>(tokens.size()), block_tokens_);
  MOE_CHECK(!Contains(block)) << "block " << block;
  const uint64_t hash = Hash(parent, salt, tokens);
  if (const Hit hit = FindHashed(hash, parent, salt, tokens); hit.block >= 0) return hit;
  Entry& e = entries_[block];
  e = Entry{.id = next_id_++, .parent = parent, .hash = hash};
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + block * block_tokens_);
  if (parent == kRoot) salts_[block] = salt;
  int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  e.chain = bucket;
  bucket = block;
  return {e.id, block};
}

void PrefixIndex::SetIdle(int32_t block) {
  Entry& e = entries_[block];
  MOE_CHECK(e.id != kRoot && !e.idle) << "block " << block;
  e.idle = true;
  e.older = newest_;
  e.newer = -1;
  (newest_ >= 0 ? entries_[newest_].newer : oldest_) = block;
  newest_ = block;
  ++num_idle_;
}

void PrefixIndex::SetBusy(int32_t block) {
  Entry& e = entries_[block];
  MOE_CHECK(e.idle) << "block " << block;
  (e.older >= 0 ? entries_[e.older].newer : oldest_) = e.newer;
  (e.newer >= 0 ? entries_[e.newer].older : newest_) = e.older;
  e.idle = false;
  --num_idle_;
}

int32_t PrefixIndex::EvictOldest() {
  const int32_t block = oldest_;
  if (block < 0) return -1;
  SetBusy(block);
  Entry& e = entries_[block];
  int32_t* link = &buckets_[e.hash & (buckets_.size() - 1)];
  while (*link != block) link = &entries_[*link].chain;
  *link = e.chain;
  e = Entry{};
  salts_[block].clear();
  return block;
}

}  // namespace moe
