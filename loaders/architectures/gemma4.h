// The parts of Gemma-4's reader.
#ifndef MOE_LOADERS_ARCHITECTURES_GEMMA4_H_
#define MOE_LOADERS_ARCHITECTURES_GEMMA4_H_

#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

namespace moe {

inline constexpr const char* kGemma4Full = "full_attention";

// The kind of each layer: layer_types, else every sixth is full; the last always is.
std::vector<std::string> ReadGemma4Types(ConfigReader* config, int64_t num_layers);

// `key_is_value`: full layers project no values.
AttentionSpec ReadGemma4Attention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm,
                                  const std::string& type, int64_t layer, bool key_is_value);

// The last num_kv_shared_layers layers read the cache of the last layer of their kind before them.
void ShareGemma4Keys(ConfigReader* config, const std::vector<std::string>& types, ModelSpec* spec);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_GEMMA4_H_
