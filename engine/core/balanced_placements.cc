#include "engine/core/balanced_placements.h"

#include <algorithm>
#include <utility>

namespace moe {

RebalanceOptions RedundancyOptions(int64_t redundant, int64_t num_experts) {
  RebalanceOptions options;
  // Half a replica more, so that rounding down cannot lose one.
  options.redundant_share =
      redundant == 0 ? 0
                     : (static_cast<double>(redundant) + 0.5) / static_cast<double>(std::max<int64_t>(num_experts, 1));
  return options;
}

StatusOr<std::vector<ExpertPlacement>> BalancedPlacements(const std::vector<std::vector<uint64_t>>& loads,
                                                          const std::vector<ExpertPlacement>& present,
                                                          int64_t redundant) {
  if (present.empty()) return present;
  if (redundant < 0 || redundant > present[0].num_experts() * (present[0].num_ranks() - 1)) {
    return InvalidError("redundant_experts: ", redundant, " is not in [0, ",
                        present[0].num_experts() * (present[0].num_ranks() - 1), "], ", present[0].num_experts(),
                        " experts on ", present[0].num_ranks(), " ranks");
  }
  std::vector<ExpertHolders> holders;
  holders.reserve(present.size());
  for (const ExpertPlacement& layer : present) holders.push_back(HoldersOf(layer));
  MOE_ASSIGN_OR_RETURN(
      std::vector<LayerPlan> plans,
      RebalanceExperts(loads, present[0].num_ranks(), RedundancyOptions(redundant, present[0].num_experts()), holders));
  std::vector<ExpertPlacement> placements;
  placements.reserve(plans.size());
  for (LayerPlan& plan : plans) placements.push_back(std::move(plan.placement));
  return placements;
}

}  // namespace moe
