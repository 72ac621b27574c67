#include "server/expert_load.h"

#include <algorithm>
#include <numeric>

#include "parallel/rebalance.h"

namespace moe {

ExpertLoad MeasureExpertLoad(const MoeLayerStats& layer, const ExpertPlacement* placement) {
  const std::vector<uint64_t>& tokens = layer.tokens_per_expert;
  ExpertLoad load;
  load.unused = std::count(tokens.begin(), tokens.end(), 0u);
  const uint64_t sum = std::accumulate(tokens.begin(), tokens.end(), uint64_t{0});
  if (sum == 0) return load;
  const uint64_t busiest = *std::max_element(tokens.begin(), tokens.end());
  load.expert_imbalance = static_cast<double>(busiest) * static_cast<double>(tokens.size()) / static_cast<double>(sum);
  if (placement != nullptr) load.rank_imbalance = ExpectedImbalance(*placement, tokens);
  return load;
}

const ExpertPlacement* PlacementOf(const EngineStats& stats, size_t ordinal) {
  return stats.placements != nullptr && ordinal < stats.placements->size() ? &(*stats.placements)[ordinal] : nullptr;
}

}  // namespace moe
