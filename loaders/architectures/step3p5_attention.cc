// Step-3.5's attention: more heads in the layers with a window, RoPE by kind of layer.
#include <algorithm>
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/step3p5.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// How many heads the layers with a window have where no per_layer_config says so.
int64_t ReadSlidingHeads(ConfigReader* config, int64_t heads) {
  heads = config->Object("attention_other_setting").IntOr("num_attention_heads", heads, 1, limits::kMaxHeads);
  return config->IntOr("num_sliding_attention_heads", heads, 1, limits::kMaxHeads);
}

// The entry of the first layer of a kind stands for all of them.
double EntryOf(const std::vector<double>& list, const std::vector<std::string>& types, const std::string& type,
               double otherwise) {
  const auto at = static_cast<size_t>(std::find(types.begin(), types.end(), type) - types.begin());
  return at < list.size() ? list[at] : otherwise;
}

RopeSpec ReadRopeOf(ConfigReader* config, const StepLayerCounts& counts, const std::vector<std::string>& types,
                    const std::string& type, int64_t head_dim, int64_t max_positions) {
  RopeDefaults rope{.head_dim = head_dim, .max_positions = max_positions, .layer_type = type};
  rope.theta_field = "";
  if (config->Object("rope_parameters").exists()) return ReadRope(config, rope);
  // Released files have lists, and a scaling for full layers only.
  std::vector<double> thetas, parts;
  if (config->TypeOf("rope_theta") == nlohmann::json::value_t::array) {
    thetas = TrimToLayers(config, "rope_theta", config->FloatList("rope_theta", 1e-3, 1e30), counts);
  } else {
    thetas = {config->FloatOr("rope_theta", 10000.0, 1e-3, 1e30)};
    thetas.resize(types.size(), thetas[0]);
  }
  parts = TrimToLayers(config, "partial_rotary_factors", config->FloatList("partial_rotary_factors", 0, 1), counts);
  rope.fixed_theta = EntryOf(thetas, types, type, 10000.0);
  rope.partial_rotary_factor = EntryOf(parts, types, type, 1.0);
  if (type == kStepFull) {
    rope.layer_type = "";
    return ReadRope(config, rope);
  }
  return PlainRope(rope.fixed_theta, static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor));
}

// `config`: the layer's fields.
AttentionSpec ReadHeads(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm, bool sliding) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec, 128);
  attn.num_kv_heads =
      config->IntOr({"num_key_value_heads", "num_attention_groups"}, attn.num_kv_heads, 1, limits::kMaxHeads);
  attn.v_head_dim = attn.head_dim;
  attn.scale = static_cast<float>(
      1.0 / std::sqrt(config->FloatOr("query_pre_attn_scalar", static_cast<double>(attn.head_dim), 1e-6, 1e9)));
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.gate = AttentionGate::kHeadSigmoid;
  if (sliding) attn.window = config->Int("sliding_window", 1, limits::kMaxPositions);
  return attn;
}

}  // namespace

AttentionSpec ReadStepAttention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm,
                                const StepLayerCounts& counts, const std::vector<std::string>& types, size_t layer) {
  const bool sliding = types[layer] == kStepSliding;
  ConfigReader own = config->PerLayer(static_cast<int64_t>(layer), {"num_attention_heads", "num_key_value_heads"});
  AttentionSpec attn = ReadHeads(&own, spec, norm, sliding);
  if (sliding && !config->Has("per_layer_config")) attn.num_heads = ReadSlidingHeads(config, attn.num_heads);
  attn.rope = ReadRopeOf(config, counts, types, types[layer], attn.head_dim, spec.max_positions);
  return attn;
}

}  // namespace moe
