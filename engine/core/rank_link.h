// RankLink: how the engine loop reaches the ranks. In process they are threads (engine/core/local_ranks.h); rank
// processes come behind engine/core/cluster_link.h; tests use a fake. Called by the loop's thread alone but where said.
#ifndef MOE_ENGINE_CORE_RANK_LINK_H_
#define MOE_ENGINE_CORE_RANK_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/core/stats.h"
#include "engine/schedule/step_plan.h"
#include "parallel/base/status.h"
#include "parallel/placement.h"

namespace moe {

// What happened to the ranks since the last Settle.
struct RankChange {
  std::vector<int> lost;  // whatever these held is gone
  std::vector<int> gained;
  bool forgotten = false;  // the others have lost it too
  bool moved = false;      // Placements has changed
};

class RankLink {
 public:
  virtual ~RankLink() = default;
  // Places for ranks; some may be empty.
  virtual int num_ranks() const = 0;
  // Grows while a step is being computed (with every layer): what tells a long step from a stuck one. Any thread.
  virtual uint64_t Heartbeat() const { return 0; }
  // Runs one step on every rank and waits for all of them. An error means that no rank's sequences have advanced as far
  // as the caller is concerned. UNAVAILABLE: the ranks have to be settled, then the step can be planned again.
  virtual StatusOr<StepResult> Step(const StepPlan& plan) = 0;
  // Gives back a result of Step: a later one may use its memory.
  virtual void Recycle(StepResult result) { (void)result; }

  // Between two steps: brings the group of ranks into order. Where too few ranks are left it waits for others, for a
  // time, or not at all (`wait` false). UNAVAILABLE: there are none that could go on; it may be called again.
  virtual StatusOr<RankChange> Settle(bool wait) {
    (void)wait;
    return RankChange{};
  }
  // Makes a Settle that waits return. For good. Any thread.
  virtual void Interrupt() {}
  // What keeps the ranks from computing, for health. Any thread.
  virtual Status Health() const { return absl::OkStatus(); }

  // Starts to even out the load of the ranks: [MoE layers][experts] rows to go by, and the replicas that a layer may
  // have beyond one of each expert. The placement changes at this or a later Settle; `done` is called there, or here
  // with why it will not.
  virtual void Rebalance(const std::vector<std::vector<uint64_t>>& loads, int64_t redundant_experts,
                         std::function<void(const Status&)> done) = 0;
  // The placement in force, over the places for ranks: [MoE layers].
  virtual std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const = 0;
  // Any thread.
  virtual RankGroupStats GroupStats() const { return {}; }
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_LINK_H_
