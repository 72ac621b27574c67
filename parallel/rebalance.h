// Expert load balancing: from the rows routed to each expert, replicas of the hottest experts and a placement whose
// busiest rank has as little more than the mean as can be. Pure functions of their arguments: no clock, no random
// seed, no threads.
//
// The scheme is that of DeepSeek's EPLB (DeepSeek-V3 technical report, arXiv 2412.19437, section 3.4;
// github.com/deepseek-ai/EPLB): replicate by load per replica, pack the heaviest first; with expert groups and several
// nodes, groups to nodes first, so that replicas stay inside a group's node. What is different here:
//  - a replica has a share of its expert's rows that need not be equal to the others', which alone levels most loads
//    without copying a weight;
//  - local search (swaps, exchanged replicas, a short annealing where slots are few) after the packing;
//  - experts and slots need not be divisible by the ranks: slots differ by at most one from rank to rank;
//  - the present placement is kept where it is nearly as good, and new contents are matched to the ranks that have
//    most of them.
#ifndef MOE_PARALLEL_REBALANCE_H_
#define MOE_PARALLEL_REBALANCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/placement.h"

namespace moe {

struct RebalanceOptions {
  // Replicas beyond one of each expert, as a part of a layer's experts (rounded down), or, if ≥ 0, a number per rank.
  double redundant_share = 0.25;
  int32_t redundant_per_rank = -1;
  // Replicas of a layer that a rank has memory for; 0: no bound. It comes before redundancy.
  int32_t max_slots_per_rank = 0;
  // The router's expert groups (contiguous runs) and the ranks of a node (contiguous too; 0: all ranks). Groups are
  // kept on nodes when both divide evenly (groups by nodes, experts by groups, ranks by nodes), else ignored.
  int32_t num_groups = 1;
  int32_t ranks_per_node = 0;
  // What is nearest to the present placement is taken if its busiest rank has at most this part more than the best
  // placement found. Infinite: copy only what must be (experts that no rank holds, slots that are new).
  double keep_within = 0.02;
};

// [experts] the ranks that hold the expert's weights now; empty: none does (any more).
using ExpertHolders = std::vector<std::vector<int32_t>>;

struct LayerPlan {
  ExpertPlacement placement;
  double imbalance = 1;         // expected: busiest rank over the mean
  double least_imbalance = 1;   // no placement with these slots can have less (PackingProblem::LeastBusiestLoad)
  std::vector<int32_t> copies;  // [ranks] experts of the placement that the rank does not hold now
};

// loads: [layers][experts] rows routed since some time; a layer without any counts as evenly loaded.
// present: [layers], or empty: nothing is held yet.
// RESOURCE_EXHAUSTED: max_slots_per_rank is too small for the experts; INVALID: sizes that do not fit together.
StatusOr<std::vector<LayerPlan>> RebalanceExperts(std::span<const std::vector<uint64_t>> loads, int num_ranks,
                                                  const RebalanceOptions& options,
                                                  std::span<const ExpertHolders> present);

// Busiest rank over the mean when `loads` ([experts]) meet `placement`; 1 without load.
double ExpectedImbalance(const ExpertPlacement& placement, std::span<const uint64_t> loads);

ExpertHolders HoldersOf(const ExpertPlacement& placement);

}  // namespace moe

#endif  // MOE_PARALLEL_REBALANCE_H_
