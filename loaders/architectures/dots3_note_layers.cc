#include "loaders/architectures/dots3_note_layers.h"

#include "loaders/architectures/common.h"

namespace moe {

std::vector<std::string> ReadDots3Kinds(ConfigReader* config, int64_t num_layers) {
  std::optional<bool> indexed = config->OptionalBool("use_dsa");
  if (!indexed && !config->Has("per_layer_config")) indexed = true;
  const bool windows = config->BoolOr("use_sliding_window", true);
  const char* whole = indexed.value_or(true) ? kDots3Indexed : kDots3Full;
  std::vector<std::string> kinds =
      ReadLayerTypes(config, num_layers, {kDots3Full, kDots3Indexed, kDots3Sliding},
                     [&](int64_t l) { return !windows || l < 2 || l % 4 == 1 ? whole : kDots3Sliding; });
  for (std::string& kind : kinds) {
    if (indexed && kind != kDots3Sliding) kind = whole;
  }
  return kinds;
}

std::vector<bool> ReadDots3Sparse(ConfigReader* config, int64_t num_layers) {
  std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, /*dense_by_default=*/1);
  if (config->Has("mlp_layer_types")) return sparse;
  if (config->TypeOf("moe_layer_freq") != nlohmann::json::value_t::array) {
    const int64_t step = config->IntOr("moe_layer_freq", 1, 1, limits::kMaxLayers);
    for (size_t l = 0; l < sparse.size(); ++l) sparse[l] = sparse[l] && static_cast<int64_t>(l) % step == 0;
    return sparse;
  }
  const std::vector<int64_t> switches = config->IntList("moe_layer_freq", 0, limits::kMaxLayers);
  if (config->ok() && static_cast<int64_t>(switches.size()) < num_layers) {
    config->Invalid("moe_layer_freq", Cat("has ", switches.size(), " entries for ", num_layers, " layers"));
  }
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) sparse[l] = sparse[l] && switches[l] != 0;
  return sparse;
}

}  // namespace moe
