// Qwen1.5/2-MoE: grouped-query attention with biases on q, k and v, softmax router, gated experts, and a shared expert
// behind a sigmoid gate.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadQwen2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 4096;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = config->BoolOr("qkv_bias", true);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  if (config->BoolOr("norm_topk_prob", false)) moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.shared = SharedExpertSpec{.mlp = moe.expert, .sigmoid_gated = true};
  moe.shared->mlp.intermediate_size = config->Int("shared_expert_intermediate_size", 1, limits::kMaxInner);
  AddPreNormLayers(config, spec, norm, attn, moe, ReadSparseLayers(config, num_layers));

  const bool slides = config->BoolOr("use_sliding_window", false);
  const int64_t last_sliding = config->IntOr("max_window_layers", 28, 0, limits::kMaxLayers);
  SetWindows(ReadWindows(config, num_layers, slides ? kDefaultWindow : 0,
                         [&](int64_t l) {
                           return slides && l % 2 == 0 && l < last_sliding ? "sliding_attention" : "full_attention";
                         }),
             spec);

  AddLlamaNames(rules);
  const std::string mlp = "model.layers.{l}.mlp.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  AddMoeNames(rules, mlp, moe.num_experts);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_expert.");
  rules->Add("layers.{l}.moe.shared_gate", mlp + "shared_expert_gate.weight");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
