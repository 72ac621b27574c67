// Mellum 2: Qwen3-MoE with sliding layers, a rotation of their own for them, and dense layers by name.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadMellum(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 1024;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  if (config->BoolOr("norm_topk_prob", true)) moe.router.normalize = RouterSpec::Normalize::kSum;
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 0));

  SetWindows(ReadWindows(config, num_layers, kDefaultWindow, [](int64_t) { return "full_attention"; }), spec);
  for (LayerSpec& layer : spec->layers) {
    auto& of_layer = std::get<AttentionSpec>(layer.mixer);
    const bool slides = of_layer.window > 0;
    of_layer.rope = ReadRope(config, {.head_dim = attn.head_dim,
                                      .theta = slides ? 10000.0 : 500000.0,
                                      .max_positions = spec->max_positions,
                                      .layer_type = slides ? "sliding_attention" : "full_attention"});
  }

  AddLlamaNames(rules);
  const std::string mlp = "model.layers.{l}.mlp.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  AddMoeNames(rules, mlp, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->Ignore("mtp.*", "multi-token prediction");
}

}  // namespace moe
