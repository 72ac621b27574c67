// Which kind of attention and of experts each of DeepSeek-V4's layers has.
#include <algorithm>

#include "loaders/architectures/deepseek_v4.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

// A list with an entry for each layer; what it says of layers behind the last one (drafts) is left out.
std::vector<std::string> LayerList(ConfigReader* config, const char* field, std::vector<std::string> list,
                                   int64_t num_layers, std::initializer_list<const char*> allowed) {
  if (config->ok() && static_cast<int64_t>(list.size()) < num_layers) {
    config->Invalid(field, Cat("has ", list.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  list.resize(static_cast<size_t>(num_layers));
  for (const std::string& kind : list) {
    if (!config->ok() || std::find(allowed.begin(), allowed.end(), kind) != allowed.end()) continue;
    config->Unsupported(field, Cat("has the layer kind ", Quoted(kind), ", which this architecture does not know"));
  }
  return list;
}

}  // namespace

std::vector<std::string> ReadDeepseekV4Types(ConfigReader* config, int64_t num_layers) {
  const char* field = config->Has("layer_types") ? "layer_types" : "compress_ratios";
  std::vector<std::string> types = config->StringList("layer_types");
  if (config->Has("compress_ratios") && types.empty()) {
    for (const int64_t ratio : config->IntList("compress_ratios", 0, limits::kMaxPositions)) {
      types.push_back(ratio == 0 ? kV4Window : ratio == 4 ? kV4Sparse : ratio == 128 ? kV4Heavy : Cat("ratio ", ratio));
    }
  } else if (types.empty()) {
    for (int64_t l = 0; l < num_layers; ++l) types.push_back(l >= 2 && l % 2 != 0 ? kV4Sparse : kV4Heavy);
  }
  return LayerList(config, field, std::move(types), num_layers, {kV4Window, kV4Sparse, kV4Heavy});
}

std::vector<bool> ReadDeepseekV4HashLayers(ConfigReader* config, int64_t num_layers) {
  std::vector<std::string> types = config->StringList("mlp_layer_types");
  const int64_t first = config->IntOr("num_hash_layers", 3, 0, limits::kMaxLayers);
  for (int64_t l = 0; l < num_layers && !config->Has("mlp_layer_types"); ++l) {
    types.push_back(l < first ? "hash_moe" : "moe");
  }
  std::vector<bool> hash;
  for (const std::string& type : LayerList(config, "mlp_layer_types", types, num_layers, {"hash_moe", "moe"})) {
    hash.push_back(type == "hash_moe");
  }
  return hash;
}

}  // namespace moe
