// Step-3.5's lists with an entry per layer.
#include <algorithm>
#include <cmath>
#include <limits>

#include "loaders/architectures/common.h"
#include "loaders/architectures/step3p5.h"
#include "loaders/json_text.h"

namespace moe {

std::vector<std::string> ReadStepKinds(ConfigReader* config, const char* field, const StepLayerCounts& counts,
                                       const char* first, const char* second) {
  std::vector<std::string> kinds = TrimToLayers(config, field, config->StringList(field), counts);
  for (const std::string& kind : kinds) {
    if (config->ok() && kind != first && kind != second) {
      config->Unsupported(
          field, Cat("has the layer kind ", Quoted(kind), "; supported for this architecture: ", first, ", ", second));
    }
  }
  return kinds;
}

std::vector<bool> ReadStepSparse(ConfigReader* config, const StepLayerCounts& counts) {
  constexpr const char* kEnum = "moe_layers_enum";
  std::vector<bool> sparse(static_cast<size_t>(counts.layers));
  const std::vector<std::string> kinds = ReadStepKinds(config, "mlp_layer_types", counts, "sparse", "dense");
  if (!config->ok()) return sparse;
  const std::vector<int64_t> listed = ReadLayerNumbers(config, kEnum);
  for (size_t l = 0; l < sparse.size(); ++l) {
    if (!kinds.empty()) {
      sparse[l] = kinds[l] == "sparse";
    } else if (config->Has(kEnum)) {
      sparse[l] = std::find(listed.begin(), listed.end(), static_cast<int64_t>(l)) != listed.end();
    } else {
      sparse[l] = l >= 3;
    }
  }
  return sparse;
}

std::vector<double> ReadStepLimits(ConfigReader* config, const char* field, const StepLayerCounts& counts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> list = TrimToLayers(config, field, config->FloatListOr(field, 0, 0, kInfinity), counts);
  for (double& limit : list) {
    if (std::isinf(limit)) limit = 0;
  }
  list.resize(static_cast<size_t>(counts.layers));
  return list;
}

}  // namespace moe
