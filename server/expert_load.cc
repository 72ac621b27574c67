#include "server/expert_load.h"

#include <algorithm>
#include <numeric>

#include "parallel/placement.h"

namespace moe {
namespace {

double BusiestOverMean(const std::vector<uint64_t>& counts) {
  const uint64_t sum = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  if (sum == 0) return 1;
  const uint64_t busiest = *std::max_element(counts.begin(), counts.end());
  return static_cast<double>(busiest) * static_cast<double>(counts.size()) / static_cast<double>(sum);
}

}  // namespace

ExpertLoad MeasureExpertLoad(const MoeLayerStats& layer, int ranks) {
  ExpertLoad load;
  load.rank_tokens.resize(ranks);
  const auto experts = static_cast<int64_t>(layer.tokens_per_expert.size());
  const ExpertPlacement placement = ExpertPlacement::Linear(experts, ranks);
  for (int64_t e = 0; e < experts; ++e) {
    load.rank_of_expert.push_back(placement.RanksOf(e)[0]);
    load.rank_tokens[load.rank_of_expert.back()] += layer.tokens_per_expert[e];
    if (layer.tokens_per_expert[e] == 0) ++load.unused;
  }
  load.expert_imbalance = BusiestOverMean(layer.tokens_per_expert);
  load.rank_imbalance = BusiestOverMean(load.rank_tokens);
  return load;
}

}  // namespace moe
