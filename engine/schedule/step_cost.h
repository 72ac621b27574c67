// StepCost: what a step of n rows costs beside one of a single row, as far as the model's shape tells.
//
// Small steps are bound by the weights they read: everything outside the experts once, and of each MoE layer the
// experts that n rows choose, E (1 - (1 - k/E)^n) of E when they choose evenly. Each row adds its arithmetic.
#ifndef MOE_ENGINE_SCHEDULE_STEP_COST_H_
#define MOE_ENGINE_SCHEDULE_STEP_COST_H_

#include <cstdint>
#include <vector>

#include "loaders/model_spec.h"

namespace moe {

class StepCost {
 public:
  StepCost() = default;  // every row is free
  explicit StepCost(const ModelSpec& spec);

  // 1 for one row. REQUIRES: rows >= 1.
  double operator()(int64_t rows) const;

 private:
  std::vector<double> costs_;  // of 1, 2, … rows
  double per_row_ = 0;         // beyond those
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_STEP_COST_H_
