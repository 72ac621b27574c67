// Checkpoints made from what a family plans: every tensor it needs, under the first of its names.
#ifndef MOE_TESTS_LOADERS_PLANNED_CHECKPOINT_H_
#define MOE_TESTS_LOADERS_PLANNED_CHECKPOINT_H_

#include <vector>

#include "loaders/architectures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe::testing {

// One for each stored tensor, of float32 made from its name; tables of whole numbers are I64 and count up from 0.
std::vector<TinyTensor> PlannedTensors(const ModelDescription& model);

// What opening a single file with these tensors says. `spec`: the model's, as opening leaves it.
Status OpenTensors(const ModelDescription& model, const std::vector<TinyTensor>& tensors, ModelSpec* spec);

}  // namespace moe::testing

#endif  // MOE_TESTS_LOADERS_PLANNED_CHECKPOINT_H_
