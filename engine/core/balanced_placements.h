// What the ranks' links ask of parallel/rebalance.h.
#ifndef MOE_ENGINE_CORE_BALANCED_PLACEMENTS_H_
#define MOE_ENGINE_CORE_BALANCED_PLACEMENTS_H_

#include <cstdint>
#include <vector>

#include "parallel/placement.h"
#include "parallel/rebalance.h"

namespace moe {

// RebalanceOptions for `redundant` replicas of a layer with so many experts beyond one of each.
RebalanceOptions RedundancyOptions(int64_t redundant, int64_t num_experts);

// [MoE layers] placements that even `loads` out, near `present` where that is nearly as good.
StatusOr<std::vector<ExpertPlacement>> BalancedPlacements(const std::vector<std::vector<uint64_t>>& loads,
                                                          const std::vector<ExpertPlacement>& present,
                                                          int64_t redundant);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_BALANCED_PLACEMENTS_H_
