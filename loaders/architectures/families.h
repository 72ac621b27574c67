// The entry of each family's file; the table is in loaders/architectures.cc.
#ifndef MOE_LOADERS_ARCHITECTURES_FAMILIES_H_
#define MOE_LOADERS_ARCHITECTURES_FAMILIES_H_

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

void ReadMixtral(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadNemotronH(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);
void ReadQwen3Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_FAMILIES_H_
