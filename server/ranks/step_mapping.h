// RankPlan and RankResult ↔ worker.proto, bit for bit. What is read may come from anywhere: parts that do not fit
// together are INVALID_ARGUMENT. Whether a result fits its plan, and a plan its rank's caches, is for the reader to
// see.
#ifndef MOE_SERVER_RANKS_STEP_MAPPING_H_
#define MOE_SERVER_RANKS_STEP_MAPPING_H_

#include "engine/schedule/step_plan.h"
#include "moe/v1/worker.pb.h"
#include "parallel/base/status.h"

namespace moe {

// Fills drop, admit and slices of `message`.
void PlanToProto(const RankPlan& plan, v1::RankStep* message);
StatusOr<RankPlan> PlanFromProto(const v1::RankStep& message);

void ResultToProto(const RankResult& result, v1::RankStepResult* message);
StatusOr<RankResult> ResultFromProto(const v1::RankStepResult& message);

}  // namespace moe

#endif  // MOE_SERVER_RANKS_STEP_MAPPING_H_
