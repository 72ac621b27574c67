// LocalRanks: the ranks of this process behind RankLink. One rank runs on the caller's thread; several run on a thread
// each and meet in their exchanges.
#ifndef MOE_ENGINE_CORE_LOCAL_RANKS_H_
#define MOE_ENGINE_CORE_LOCAL_RANKS_H_

#include <memory>
#include <vector>

#include "engine/core/rank_link.h"
#include "engine/core/rank_worker.h"

namespace moe {

// workers[i] is rank i; not empty. `placements`: [MoE layers], what the workers were created with. All of them hold all
// experts, so rebalancing only changes who computes what.
std::unique_ptr<RankLink> CreateLocalRanks(std::vector<std::unique_ptr<RankWorker>> workers,
                                           std::shared_ptr<const std::vector<ExpertPlacement>> placements);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_LOCAL_RANKS_H_
