// Qwen3-MoE: grouped-query attention with per-head QK norm, softmax router, gated experts, no shared expert.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadQwen3Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectBool("use_sliding_window", false);
  const NormSpec norm{NormKind::kRms, static_cast<float>(config->FloatOr("rms_norm_eps", 1e-6, 0, 1)), false};
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSoftmax;
  if (config->BoolOr("norm_topk_prob", false)) moe.router.normalize = RouterSpec::Normalize::kSum;

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
  AddGatedMlpNames(rules, "layers.{l}.mlp.", "model.layers.{l}.mlp.");
  rules->Add("layers.{l}.moe.router", "model.layers.{l}.mlp.gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", "model.layers.{l}.mlp.experts.", "gate_proj", "up_proj", "down_proj");
  rules->AddFusedExperts("layers.{l}.moe.experts.", "model.layers.{l}.mlp.experts.gate_up_proj",
                         "model.layers.{l}.mlp.experts.down_proj", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
