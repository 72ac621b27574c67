// The parts of Step-3.5's reader. Lists with an entry per layer may go on with the draft layers'.
#ifndef MOE_LOADERS_ARCHITECTURES_STEP3P5_H_
#define MOE_LOADERS_ARCHITECTURES_STEP3P5_H_

#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

namespace moe {

inline constexpr const char* kStepFull = "full_attention";
inline constexpr const char* kStepSliding = "sliding_attention";

struct StepLayerCounts {
  int64_t layers = 0;
  int64_t drafts = 0;
};

// Cuts the draft layers' entries off.
template <typename T>
std::vector<T> TrimToLayers(ConfigReader* config, const char* field, std::vector<T> list,
                            const StepLayerCounts& counts) {
  const auto size = static_cast<int64_t>(list.size());
  if (config->ok() && size != 0 && size != counts.layers && size != counts.layers + counts.drafts) {
    config->Invalid(field, Cat("has ", size, " entries for ", counts.layers, " layers"));
  }
  if (size > 0) list.resize(static_cast<size_t>(counts.layers));
  return list;
}

// A list of kinds of layers, each one of two.
std::vector<std::string> ReadStepKinds(ConfigReader* config, const char* field, const StepLayerCounts& counts,
                                       const char* first, const char* second);

// Which layers have experts: mlp_layer_types, or the numbers of the layers with experts as a list or as "3,4,5", or all
// from the fourth on.
std::vector<bool> ReadStepSparse(ConfigReader* config, const StepLayerCounts& counts);

// What the activations of each layer are clamped to; 0: they are not.
std::vector<double> ReadStepLimits(ConfigReader* config, const char* field, const StepLayerCounts& counts);

// Of layer `layer`; `types` has the kinds of all.
AttentionSpec ReadStepAttention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm,
                                const StepLayerCounts& counts, const std::vector<std::string>& types, size_t layer);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_STEP3P5_H_
