#include "engine/schedule/ngram_proposer.h"

#include <algorithm>
#include <bit>

#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr uint64_t kSmallestTable = 256;
constexpr uint64_t kLargestTable = uint64_t{1} << 16;

// One round of multiply and fold; only speed depends on its quality.
inline uint64_t Mix(uint64_t h, int32_t token) {
  h = (h ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

}  // namespace

NgramProposer::NgramProposer(int64_t min_n, int64_t max_n) : min_n_(min_n), max_n_(max_n) {
  MOE_CHECK(1 <= min_n && min_n <= max_n) << min_n << " to " << max_n << " tokens";
}

template <typename F>
void NgramProposer::ForEachRun(std::span<const int32_t> tokens, int64_t end, F f) const {
  uint64_t h = 0x2545F4914F6CDD1Dull;
  for (int64_t n = 1; n <= std::min(max_n_, end); ++n) {
    h = Mix(h, tokens[end - n]);
    if (n >= min_n_) f(n, static_cast<size_t>(h >> 20 & (table_.size() - 1)));
  }
}

void NgramProposer::Index(std::span<const int32_t> tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  // Twice as many slots as runs, so that few are lost. A larger table is filled from the start: O(1) a token over all.
  const uint64_t runs = static_cast<uint64_t>(size) * static_cast<uint64_t>(max_n_ - min_n_ + 1);
  const uint64_t slots = std::clamp(std::bit_ceil(2 * runs), kSmallestTable, kLargestTable);
  if (slots > table_.size()) {
    // Room for as much again, or every few tokens would find it full.
    table_.assign(std::min(2 * slots, kLargestTable), 0);
    indexed_ = 0;
  }
  // The run at the very end has no token behind it yet.
  for (int64_t end = indexed_ + 1; end < size; ++end) {
    ForEachRun(tokens, end, [&](int64_t, size_t slot) { table_[slot] = static_cast<int32_t>(end); });
  }
  indexed_ = std::max<int64_t>(size - 1, 0);
}

void NgramProposer::Propose(std::span<const int32_t> tokens, int64_t count, std::vector<int32_t>* guess) {
  guess->clear();
  Index(tokens);
  const auto size = static_cast<int64_t>(tokens.size());
  int64_t behind = 0;  // of the longest run found
  ForEachRun(tokens, size, [&](int64_t n, size_t slot) {
    const int64_t end = table_[slot];
    if (end >= n && std::equal(tokens.end() - n, tokens.end(), tokens.begin() + (end - n))) behind = end;
  });
  if (behind == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = behind + i;
    guess->push_back(from < size ? tokens[from] : (*guess)[static_cast<size_t>(from - size)]);
  }
}

}  // namespace moe
