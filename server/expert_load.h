// How evenly a layer's experts and ranks are used, from the engine's counters.
#ifndef MOE_SERVER_EXPERT_LOAD_H_
#define MOE_SERVER_EXPERT_LOAD_H_

#include <cstdint>

#include "engine/core/stats.h"

namespace moe {

struct ExpertLoad {
  double expert_imbalance = 1;  // busiest expert over the mean
  double rank_imbalance = 1;    // busiest rank over the mean; 1 without any tokens, as the one above
  int64_t unused = 0;           // experts never chosen
};

// The rank imbalance is that of all rows so far under the placement in force (null: one rank), so a rebalancing shows
// at once.
ExpertLoad MeasureExpertLoad(const MoeLayerStats& layer, const ExpertPlacement* placement);

// The placement of MoE layer number `ordinal`; null: the engine has one rank, or has not said.
const ExpertPlacement* PlacementOf(const EngineStats& stats, size_t ordinal);

}  // namespace moe

#endif  // MOE_SERVER_EXPERT_LOAD_H_
