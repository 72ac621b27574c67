// Qwen1.5/2-MoE: grouped-query attention with biases on q, k and v, softmax router, gated experts, and a shared expert
// behind a sigmoid gate.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadQwen2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectBool("use_sliding_window", false);
  const NormSpec norm{NormKind::kRms, static_cast<float>(config->FloatOr("rms_norm_eps", 1e-6, 0, 1)), false};
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = config->BoolOr("qkv_bias", true);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSoftmax;
  if (config->BoolOr("norm_topk_prob", false)) moe.router.normalize = RouterSpec::Normalize::kSum;
  SharedExpertSpec shared;
  shared.mlp.intermediate_size = config->Int("shared_expert_intermediate_size", 1, limits::kMaxInner);
  shared.sigmoid_gated = true;
  moe.shared = shared;

  const std::vector<bool> sparse = ReadSparseLayers(config, num_layers);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    if (!sparse[static_cast<size_t>(l)]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner)};
    }
  }

  AddLlamaNames(rules);
  const std::string mlp = "model.layers.{l}.mlp.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  rules->Add("layers.{l}.moe.router", mlp + "gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", mlp + "experts.", "gate_proj", "up_proj", "down_proj");
  rules->AddFusedExperts("layers.{l}.moe.experts.", mlp + "experts.gate_up_proj", mlp + "experts.down_proj",
                         moe.num_experts);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_expert.");
  rules->Add("layers.{l}.moe.shared_gate", mlp + "shared_expert_gate.weight");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
