#include "parallel/rank_matching.h"

#include <algorithm>

namespace moe {

std::vector<int32_t> MatchRanks(std::span<const int64_t> held, std::span<const int32_t> kind) {
  const auto n = static_cast<int32_t>(kind.size());
  struct Pair {
    int64_t held;
    int32_t contents;
    int32_t rank;
  };
  std::vector<Pair> pairs;
  for (int32_t c = 0; c < n; ++c) {
    for (int32_t r = 0; r < n; ++r) {
      if (kind[c] == kind[r] && held[c * n + r] > 0) pairs.push_back({held[c * n + r], c, r});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return a.held != b.held ? a.held > b.held : (a.contents == a.rank) > (b.contents == b.rank);
  });
  std::vector<int32_t> source(n, -1);
  std::vector<bool> placed(n);
  for (const Pair& pair : pairs) {
    if (placed[pair.contents] || source[pair.rank] >= 0) continue;
    source[pair.rank] = pair.contents;
    placed[pair.contents] = true;
  }
  // The others, first to where they are.
  for (int32_t r = 0; r < n; ++r) {
    if (source[r] < 0 && !placed[r]) {
      source[r] = r;
      placed[r] = true;
    }
  }
  for (int32_t r = 0; r < n; ++r) {
    for (int32_t c = 0; source[r] < 0 && c < n; ++c) {
      if (placed[c] || kind[c] != kind[r]) continue;
      source[r] = c;
      placed[c] = true;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t a = 0; a < n; ++a) {
      for (int32_t b = a + 1; b < n; ++b) {
        if (kind[a] != kind[b]) continue;
        const int64_t now = held[source[a] * n + a] + held[source[b] * n + b];
        if (held[source[b] * n + a] + held[source[a] * n + b] <= now) continue;
        std::swap(source[a], source[b]);
        changed = true;
      }
    }
  }
  return source;
}

}  // namespace moe
