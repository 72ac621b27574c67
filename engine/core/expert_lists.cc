#include "engine/core/expert_lists.h"

#include <algorithm>
#include <iterator>

namespace moe {

bool Covers(const ExpertLists& held, const ExpertLists& wanted) {
  for (size_t l = 0; l < wanted.size(); ++l) {
    if (l >= held.size() || !std::includes(held[l].begin(), held[l].end(), wanted[l].begin(), wanted[l].end())) {
      return false;
    }
  }
  return true;
}

int64_t Missing(const ExpertLists& held, const ExpertLists& wanted) {
  int64_t missing = 0;
  for (size_t l = 0; l < wanted.size(); ++l) {
    for (int32_t expert : wanted[l]) {
      missing += l < held.size() && std::binary_search(held[l].begin(), held[l].end(), expert) ? 0 : 1;
    }
  }
  return missing;
}

ExpertLists Union(const ExpertLists& a, const ExpertLists& b) {
  ExpertLists both(std::max(a.size(), b.size()));
  for (size_t l = 0; l < both.size(); ++l) {
    const std::vector<int32_t> none;
    const std::vector<int32_t>& x = l < a.size() ? a[l] : none;
    const std::vector<int32_t>& y = l < b.size() ? b[l] : none;
    std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both[l]));
  }
  return both;
}

ExpertLists Intersection(const ExpertLists& a, const ExpertLists& b) {
  ExpertLists both(std::min(a.size(), b.size()));
  for (size_t l = 0; l < both.size(); ++l) {
    std::set_intersection(a[l].begin(), a[l].end(), b[l].begin(), b[l].end(), std::back_inserter(both[l]));
  }
  return both;
}

// What happened after `change`.

}  // namespace moe
