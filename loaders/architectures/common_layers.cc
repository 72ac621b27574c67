// Which layer is of which kind, in the ways that many families say it (common.h).
#include <algorithm>
#include <utility>

#include "loaders/architectures/common.h"
#include "loaders/json_text.h"

namespace moe {

std::vector<bool> ReadSparseLayers(ConfigReader* config, int64_t num_layers) {
  const int64_t step = config->IntOr("decoder_sparse_step", 1, 1, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = (l + 1) % step == 0;
  for (const int64_t l : config->IntList("mlp_only_layers", 0, limits::kMaxLayers)) {
    if (l < num_layers) sparse[static_cast<size_t>(l)] = false;
  }
  return sparse;
}

namespace {

// A list with one entry a layer, or empty when absent.
std::vector<std::string> ReadPerLayer(ConfigReader* config, const char* field, int64_t num_layers) {
  std::vector<std::string> types = config->StringList(field);
  if (config->ok() && config->Has(field) && static_cast<int64_t>(types.size()) != num_layers) {
    config->Invalid(field, Cat("has ", types.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  return types;
}

void CheckKinds(ConfigReader* config, const char* field, const std::vector<std::string>& types,
                std::initializer_list<const char*> allowed) {
  for (const std::string& type : types) {
    if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) continue;
    std::string offered;
    for (const char* one : allowed) offered += Cat(offered.empty() ? "" : ", ", one);
    config->Unsupported(field,
                        Cat("has the layer kind ", Quoted(type), "; supported for this architecture: ", offered));
  }
}

}  // namespace

std::vector<std::string> ReadLayerTypes(ConfigReader* config, int64_t num_layers,
                                        std::initializer_list<const char*> allowed,
                                        const std::function<std::string(int64_t)>& otherwise) {
  static constexpr std::pair<const char*, const char*> kOldSpellings[] = {
      {"mamba", "linear_attention"},
      {"attention", "full_attention"},
      {"deepseek_sparse_attention", "indexed_attention"},
      {"qwen_sparse_attention", "indexed_attention"}};
  std::vector<std::string> types = ReadPerLayer(config, "layer_types", num_layers);
  for (std::string& type : types) {
    for (const auto& [old, current] : kOldSpellings) {
      if (type == old) {
        type = current;
        break;
      }
    }
  }
  CheckKinds(config, "layer_types", types, allowed);
  types.resize(static_cast<size_t>(num_layers));
  if (!config->Has("layer_types") || !config->ok()) {
    for (int64_t l = 0; l < num_layers; ++l) types[static_cast<size_t>(l)] = otherwise(l);
  }
  return types;
}

std::vector<int64_t> ReadWindows(ConfigReader* config, int64_t num_layers, int64_t default_window,
                                 const std::function<std::string(int64_t)>& otherwise) {
  const std::string sliding = "sliding_attention";
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {"full_attention", "sliding_attention"}, otherwise);
  if (config->IsNull("sliding_window")) default_window = 0;
  const int64_t window = config->IntOr("sliding_window", default_window, 0, limits::kMaxPositions);
  std::vector<int64_t> windows;
  windows.reserve(types.size());
  for (const std::string& type : types) windows.push_back(type == sliding ? window : 0);
  if (config->ok() && window == 0 && std::find(types.begin(), types.end(), sliding) != types.end()) {
    config->Invalid("sliding_window", "is absent or 0, but layer_types has sliding_attention");
  }
  return windows;
}

std::vector<bool> ReadMlpLayerTypes(ConfigReader* config, int64_t num_layers, int64_t dense_by_default) {
  const std::vector<std::string> types = ReadPerLayer(config, "mlp_layer_types", num_layers);
  CheckKinds(config, "mlp_layer_types", types, {"dense", "sparse"});
  const int64_t dense = config->IntOr("first_k_dense_replace", dense_by_default, 0, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense;
  if (config->ok()) {
    for (size_t l = 0; l < types.size(); ++l) sparse[l] = types[l] == "sparse";
  }
  return sparse;
}

std::vector<int64_t> ReadLayerNumbers(ConfigReader* config, const char* field) {
  if (config->TypeOf(field) != nlohmann::json::value_t::string) return config->IntList(field, 0, limits::kMaxLayers);
  std::vector<int64_t> numbers;
  const std::string text = config->String(field);
  if (text.find_first_not_of("0123456789, ") != std::string::npos) {
    config->Invalid(field, Cat("is ", Quoted(text), ", expected numbers with commas between them"));
  }
  int64_t number = -1;
  for (const char c : text + ",") {
    if (c >= '0' && c <= '9') {
      number = std::min(std::max<int64_t>(number, 0) * 10 + (c - '0'), limits::kMaxLayers);
    } else if (c == ',' && number >= 0) {
      numbers.push_back(number);
      number = -1;
    }
  }
  return numbers;
}

void AddPreNormLayers(ConfigReader* config, ModelSpec* spec, const NormSpec& norm, const AttentionSpec& attn,
                      const MoeSpec& moe, const std::vector<bool>& sparse, bool mlp_bias) {
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    if (!sparse[l]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                          .activation = moe.expert.activation,
                          .bias = mlp_bias};
    }
  }
}

void SetWindows(const std::vector<int64_t>& windows, ModelSpec* spec) {
  for (size_t l = 0; l < spec->layers.size() && l < windows.size(); ++l) {
    if (auto* attn = std::get_if<AttentionSpec>(&spec->layers[l].mixer)) attn->window = windows[l];
  }
}

}  // namespace moe
