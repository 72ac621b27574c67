// Gemma-4's attention: layers with a window and full ones with larger heads, and layers that share keys and values.
#include "loaders/architectures/common.h"
#include "loaders/architectures/gemma4.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr const char* kSliding = "sliding_attention";

}  // namespace

std::vector<std::string> ReadGemma4Types(ConfigReader* config, int64_t num_layers) {
  std::vector<std::string> types = ReadLayerTypes(config, num_layers, {kGemma4Full, kSliding},
                                                  [](int64_t l) { return (l + 1) % 6 == 0 ? kGemma4Full : kSliding; });
  if (!types.empty()) types.back() = kGemma4Full;  // whatever layer_types says
  return types;
}

AttentionSpec ReadGemma4Attention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm,
                                  const std::string& type, int64_t layer, bool key_is_value) {
  ConfigReader own = config->PerLayer(layer, {"head_dim", "num_key_value_heads"});
  AttentionSpec attn = ReadGroupedQueryAttention(&own, spec, 256);
  const bool full = type == kGemma4Full;
  // How released files say what per_layer_config says.
  if (full && !config->Has("per_layer_config")) {
    attn.head_dim = config->IntOr("global_head_dim", 512, 1, limits::kMaxHeadDim);
    if (key_is_value) {
      attn.num_kv_heads = config->IntOr("num_global_key_value_heads", attn.num_kv_heads, 1, limits::kMaxHeads);
    }
  }
  attn.v_head_dim = attn.head_dim;
  attn.scale = 1;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.v_norm = {.eps = norm.eps, .weight = false};
  if (!full) attn.window = config->IntOr("sliding_window", 512, 1, limits::kMaxPositions);
  RopeDefaults rope{.head_dim = attn.head_dim, .max_positions = spec.max_positions, .layer_type = type};
  rope.theta_field = "";
  rope.settings = {
      {kSliding, {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
      {kGemma4Full, {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1000000.0}}}};
  // A part of the head makes sense with the proportional kind alone.
  rope.whole_head = RopeSettings(config, rope).StringOr({"rope_type", "type"}, "default") != "proportional";
  attn.rope = ReadRope(config, rope);
  return attn;
}

void ShareGemma4Keys(ConfigReader* config, const std::vector<std::string>& types, ModelSpec* spec) {
  const auto num_layers = static_cast<int64_t>(types.size());
  const int64_t shared = config->IntOr("num_kv_shared_layers", 0, 0, limits::kMaxLayers);
  if (shared > num_layers) config->Invalid("num_kv_shared_layers", Cat("is ", shared, " of ", num_layers, " layers"));
  const int64_t first = num_layers - shared;
  const bool wide = config->BoolOr("use_double_wide_mlp", false);
  for (int64_t l = first; config->ok() && l < num_layers; ++l) {
    int64_t source = first - 1;
    while (source >= 0 && types[static_cast<size_t>(source)] != types[static_cast<size_t>(l)]) --source;
    if (source < 0) {
      config->Invalid("num_kv_shared_layers", Cat("leaves layer ", l, " (", types[static_cast<size_t>(l)],
                                                  ") without an earlier layer of its kind"));
      return;
    }
    LayerSpec& layer = spec->layers[static_cast<size_t>(l)];
    std::get<AttentionSpec>(layer.mixer).share_kv_with_layer = source;
    if (!wide) continue;
    if (auto* mlp = std::get_if<MlpSpec>(&layer.ffn)) mlp->intermediate_size *= 2;
    if (layer.beside) layer.beside->mlp.intermediate_size *= 2;
  }
}

}  // namespace moe
