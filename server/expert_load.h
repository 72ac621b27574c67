// How evenly a layer's experts are used, from the engine's counters.
#ifndef MOE_SERVER_EXPERT_LOAD_H_
#define MOE_SERVER_EXPERT_LOAD_H_

#include <cstdint>
#include <vector>

#include "engine/core/stats.h"

namespace moe {

struct ExpertLoad {
  std::vector<int32_t> rank_of_expert;
  std::vector<uint64_t> rank_tokens;  // rows routed to each rank's experts
  double expert_imbalance = 1;        // busiest expert over the mean
  double rank_imbalance = 1;          // busiest rank over the mean; 1 without any tokens, as the one above
  int64_t unused = 0;                 // experts never chosen
};

// Experts lie on the ranks in contiguous runs (ExpertPlacement::Linear), the engine's placement.
ExpertLoad MeasureExpertLoad(const MoeLayerStats& layer, int ranks);

}  // namespace moe

#endif  // MOE_SERVER_EXPERT_LOAD_H_
