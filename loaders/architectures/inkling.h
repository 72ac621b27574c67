// The parts of Inkling's reader.
#ifndef MOE_LOADERS_ARCHITECTURES_INKLING_H_
#define MOE_LOADERS_ARCHITECTURES_INKLING_H_

#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// All names; `moe` is that of the layers with experts.
void AddInklingNames(TensorRules* rules, const ModelSpec& spec, const MoeSpec& moe);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_INKLING_H_
