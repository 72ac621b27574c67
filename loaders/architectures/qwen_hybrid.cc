#include "loaders/architectures/qwen_hybrid.h"

#include "loaders/architectures/common.h"
#include "loaders/rope.h"

namespace moe {

NormSpec ReadOffsetNorm(ConfigReader* config) {
  NormSpec norm = ReadRmsNorm(config, 1e-6);
  norm.kind = NormKind::kRmsOffset;
  return norm;
}

GatedDeltaSpec ReadGatedDelta(ConfigReader* config, int64_t default_k_heads, int64_t default_v_heads, float norm_eps) {
  GatedDeltaSpec delta;
  delta.num_k_heads = config->IntOr("linear_num_key_heads", default_k_heads, 1, limits::kMaxHeads);
  delta.num_v_heads = config->IntOr("linear_num_value_heads", default_v_heads, 1, limits::kMaxHeads);
  delta.k_head_dim = config->IntOr("linear_key_head_dim", 128, 1, limits::kMaxHeadDim);
  delta.v_head_dim = config->IntOr("linear_value_head_dim", 128, 1, limits::kMaxHeadDim);
  delta.conv_kernel = config->IntOr("linear_conv_kernel_dim", 4, 1, 64);
  delta.norm = {NormKind::kRms, norm_eps};
  return delta;
}

MoeSpec ReadQwenMoe(ConfigReader* config, bool renormalize, bool gated_shared) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSoftmax;
  if (renormalize) moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.shared = SharedExpertSpec{
      .mlp = {.intermediate_size = config->Int("shared_expert_intermediate_size", 1, limits::kMaxInner)},
      .sigmoid_gated = gated_shared};
  return moe;
}

AttentionSpec ReadGatedAttention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm, double rotated) {
  config->ExpectBool("attn_output_gate", true);
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.gate = AttentionGate::kElementSigmoid;
  attn.qkv_bias = attn.gate_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(
      config, {.head_dim = attn.head_dim, .partial_rotary_factor = rotated, .max_positions = spec.max_positions});
  return attn;
}

void AddQwenHybridNames(TensorRules* rules, const std::string& layer, const GatedDeltaSpec& delta, const MoeSpec& moe) {
  const std::string linear = layer + "linear_attn.";
  const std::string conv = linear + "conv1d.weight";
  rules->Add("layers.{l}.delta.conv_q", conv, RowSlice(0, delta.conv_dim()));
  rules->Add("layers.{l}.delta.conv_k", conv, RowSlice(delta.k_dim(), delta.conv_dim()));
  rules->Add("layers.{l}.delta.conv_v", conv, RowSlice(2 * delta.k_dim(), delta.conv_dim()));
  rules->Add("layers.{l}.delta.a_log", linear + "A_log");
  rules->Add("layers.{l}.delta.dt_bias", linear + "dt_bias");
  rules->Add("layers.{l}.delta.norm", linear + "norm.weight");
  rules->Add("layers.{l}.delta.o", linear + "out_proj.weight");
  AddMoeNames(rules, layer + "mlp.", moe.num_experts);
  AddGatedMlpNames(rules, "layers.{l}.mlp.", layer + "mlp.");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", layer + "mlp.shared_expert.");
  rules->Add("layers.{l}.moe.shared_gate", layer + "mlp.shared_expert_gate.weight");
}

void AddGatedQueryNames(TensorRules* rules, const std::string& layer, const AttentionSpec& attn) {
  const int64_t dim = attn.head_dim;
  for (const char* part : {"weight", "bias"}) {
    const std::string suffix = part == std::string("bias") ? ".bias" : "";
    rules->Add("layers.{l}.attn.q" + suffix, layer + "self_attn.q_proj." + part, HeadSlice(0, dim, 2 * dim));
    rules->Add("layers.{l}.attn.gate" + suffix, layer + "self_attn.q_proj." + part, HeadSlice(dim, dim, 2 * dim));
  }
}

void AddSplitProjections(TensorRules* rules, const std::string& linear, const GatedDeltaSpec& delta) {
  const std::string qkv = linear + "in_proj_qkv.weight";
  rules->Add("layers.{l}.delta.q", qkv, RowSlice(0, delta.conv_dim()));
  rules->Add("layers.{l}.delta.k", qkv, RowSlice(delta.k_dim(), delta.conv_dim()));
  rules->Add("layers.{l}.delta.v", qkv, RowSlice(2 * delta.k_dim(), delta.conv_dim()));
  for (const char* name : {"z", "b", "a"}) {
    rules->Add(Cat("layers.{l}.delta.", name), Cat(linear, "in_proj_", name, ".weight"));
  }
}

}  // namespace moe
