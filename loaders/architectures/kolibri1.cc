// Kolibri-1: norms before and after each block, attention with per-head QK norm, sliding layers with RoPE and full
// layers without positions; the router picks by logit plus bias and weighs with the logit's sigmoid.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadKolibri1(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 513;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = moe.router.select_by_logit = true;
  if (config->BoolOr("norm_topk_prob", false)) moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.intermediate_size = config->IntOr("shared_expert_intermediate_size", 512, 1, limits::kMaxInner);

  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));
  SetWindows(ReadWindows(config, num_layers, kDefaultWindow,
                         [](int64_t l) { return (l + 1) % 5 == 0 ? "full_attention" : "sliding_attention"; }),
             spec);
  const bool slides = !config->IsNull("sliding_window");
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_post_norm = layer.ffn_post_norm = norm;
    auto& of_layer = std::get<AttentionSpec>(layer.mixer);
    if (slides && of_layer.window == 0) of_layer.rope.reset();
  }

  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_attn_norm.weight");
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_self_attn_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_ffn_norm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_mlp_layernorm.weight");
  rules->Add("layers.{l}.moe.router.select_bias", layer + "moe.router.expert_bias");
  AddDeepseekMoeNames(rules, layer + "mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
