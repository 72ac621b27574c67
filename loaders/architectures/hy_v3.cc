// Tencent Hy3: grouped-query attention with per-head QK norm, the first layer dense, then a sigmoid router with a
// selection bias whose weights always sum to one before the scaling factor, and shared experts.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadHyV3(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  // What the released config says beside the fields that matter here.
  for (const char* field : {"qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"}) {
    config->ExpectBool(field, true);
  }
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .theta = 11158840.0, .max_positions = spec->max_positions});

  const bool mlp_bias = config->BoolOr("mlp_bias", false);
  MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.826});
  if (moe.shared) moe.shared->mlp.bias = mlp_bias;
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 1), mlp_bias);

  AddLlamaNames(rules);
  const std::string mlp = "model.layers.{l}.mlp.";
  rules->Add("layers.{l}.moe.router", mlp + "router.gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "expert_bias");
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "e_score_correction_bias");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_mlp.");
  AddDeepseekMoeNames(rules, mlp, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers, 1);
}

}  // namespace moe
