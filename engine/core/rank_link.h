// RankLink: how the engine loop reaches the ranks. In process they are threads (engine/core/local_ranks.h); tests use a
// fake; rank processes come behind the same interface.
#ifndef MOE_ENGINE_CORE_RANK_LINK_H_
#define MOE_ENGINE_CORE_RANK_LINK_H_

#include <cstdint>

#include "engine/schedule/step_plan.h"
#include "parallel/base/status.h"

namespace moe {

class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual int num_ranks() const = 0;
  // Grows while a step is being computed (with every layer): what tells a long step from a stuck one. Any thread.
  virtual uint64_t Heartbeat() const { return 0; }
  // Runs one step on every rank and waits for all of them. An error means that no rank's sequences have advanced as far
  // as the caller is concerned.
  virtual StatusOr<StepResult> Step(const StepPlan& plan) = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_LINK_H_
