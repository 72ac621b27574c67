// The table of model families, and config.json → ModelSpec + TensorRules through it.
#ifndef MOE_LOADERS_ARCHITECTURES_H_
#define MOE_LOADERS_ARCHITECTURES_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/quant/quantization_config.h"
#include "loaders/tensor_rules.h"

namespace moe {

// One family: a file in loaders/architectures that reads the config into a spec and says how its tensors are called.
struct Architecture {
  const char* name;        // architectures[0]
  const char* model_type;  // used only when the config has no architectures; null: shared with another architecture
  const char* family;
  void (*read)(ConfigReader* config, ModelSpec* spec, TensorRules* rules);  // errors go to *config
};

std::span<const Architecture> Architectures();

struct ModelDescription {
  ModelSpec spec;
  TensorRules rules;
  std::string dtype;  // what dtype or torch_dtype says, without "torch."; the stored tensors decide, not this
  QuantizationConfig quantization;
  std::vector<std::string> warnings;  // fields that are not in force as they stand
};

// `text`: the content of config.json. Dispatches on architectures[0], never on model_type when that is there: several
// models share a model_type. The result has passed ValidateSpec.
StatusOr<ModelDescription> ReadModelConfig(std::string_view text, const std::string& file = "config.json",
                                           std::span<const Architecture> table = Architectures());

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_H_
