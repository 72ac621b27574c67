// The tensors that a checkpoint of a model is expected to have, before there is one.
#ifndef MOE_LOADERS_TENSOR_PLAN_H_
#define MOE_LOADERS_TENSOR_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// Tensors of one name pattern and one shape.
struct PlannedTensors {
  std::string pattern;  // "model.layers.{l}.mlp.experts.{e}.gate_proj.weight"
  std::vector<int64_t> shape;
  std::vector<std::string> holds;  // the patterns of the canonical tensors in it
  std::vector<int64_t> layers;     // ascending; empty: it belongs to none
  int64_t experts = 0;             // {e} is 0 … experts - 1; 0: the pattern has none
  int64_t count = 0;
  int64_t parameters = 0;
};

struct TensorPlan {
  std::vector<PlannedTensors> tensors;  // in the order of use
  int64_t count = 0;
  int64_t parameters = 0;
};

// Of the names that a family knows for a tensor, the first. `each` gets every tensor's name, once.
TensorPlan PlanTensors(const ModelSpec& spec, const TensorRules& rules,
                       const std::function<void(const std::string&)>& each = {});

}  // namespace moe

#endif  // MOE_LOADERS_TENSOR_PLAN_H_
