// Beam: norms before and after each block, residual sums weighted by depth, gated attention with per-head QK norm;
// sliding layers rotate, full ones scale their queries by position instead; dense layers first, then DeepSeek-V3's
// router without shared experts.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// The n-th sum of the model (the embedding is the first term) keeps the variance of its n terms: each has the weight
// n^-1/2.
ResidualSpec DepthScaled(size_t n) {
  const auto terms = static_cast<double>(n);
  return {.skip = static_cast<float>(std::sqrt((terms - 1) / terms)),
          .branch = static_cast<float>(1 / std::sqrt(terms))};
}

}  // namespace

void ReadBeam(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 512;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  const double default_cap = config->IsNull("final_logit_softcapping") ? 0.0 : 30.0;
  spec->logit_cap = static_cast<float>(config->FloatOr("final_logit_softcapping", default_cap, 1e-30, 1e6));

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.gate = AttentionGate::kElementSigmoid;
  attn.gate_head_bias = true;

  const MoeSpec moe =
      ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4, .n_shared_experts = 0});
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 3));
  SetWindows(ReadWindows(config, num_layers, kDefaultWindow,
                         [&](int64_t l) {
                           return (l + 1) % 6 == 0 || l == num_layers - 1 ? "full_attention" : "sliding_attention";
                         }),
             spec);

  const ConfigReader ropes = config->Object("rope_parameters");
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    LayerSpec& layer = spec->layers[l];
    layer.mixer_post_norm = layer.ffn_post_norm = norm;
    layer.mixer_residual = DepthScaled(2 * l + 2);
    layer.ffn_residual = DepthScaled(2 * l + 3);
    auto& of_layer = std::get<AttentionSpec>(layer.mixer);
    const bool slides = of_layer.window > 0;
    const char* type = slides ? "sliding_attention" : "full_attention";
    if (ropes.exists() ? ropes.Has(type) : slides) {
      of_layer.rope =
          ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions, .layer_type = type});
    } else {
      of_layer.query_scale = {.kind = PositionScale::Kind::kPower, .beta = 0.1, .period = 2048, .offset = 1};
    }
  }

  AddLlamaAttentionNames(rules);
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.attn.gate", layer + "self_attn.gate_proj.weight");
  rules->Add("layers.{l}.attn.gate.head_bias", layer + "self_attn.gate_bias");
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_attention_layernorm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "pre_feedforward_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_feedforward_layernorm.weight");
  AddDeepseekMoeNames(rules, layer + "mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
