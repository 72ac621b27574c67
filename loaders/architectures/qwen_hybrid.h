// What the families around gated delta nets share: Qwen3-Next, Qwen3.5-MoE, Qwen4-Exp, Lara-Mini.
#ifndef MOE_LOADERS_ARCHITECTURES_QWEN_HYBRID_H_
#define MOE_LOADERS_ARCHITECTURES_QWEN_HYBRID_H_

#include <cstdint>
#include <string>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// RMS norm with rms_norm_eps that multiplies by 1 + w.
NormSpec ReadOffsetNorm(ConfigReader* config);

// linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim.
GatedDeltaSpec ReadGatedDelta(ConfigReader* config, int64_t default_k_heads, int64_t default_v_heads, float norm_eps);

// Softmax routing, one shared expert of shared_expert_intermediate_size.
MoeSpec ReadQwenMoe(ConfigReader* config, bool renormalize, bool gated_shared);

// Attention with a gate inside q_proj and `norm` over each head of q and k; partial_rotary_factor is `rotated` where
// the file does not say.
AttentionSpec ReadGatedAttention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm, double rotated);

// Under LAYER ("model.layers.{l}."): all but the projections in front of the recurrence.
void AddQwenHybridNames(TensorRules* rules, const std::string& layer, const GatedDeltaSpec& delta, const MoeSpec& moe);

// Each head's rows of q_proj: its query, then its gate. Before AddLlamaNames, whose q_proj is the query alone.
void AddGatedQueryNames(TensorRules* rules, const std::string& layer, const AttentionSpec& attn);

// Under LINEAR ("model.layers.{l}.linear_attn."): in_proj_qkv with all of q, then k, then v; z, b and a on their own.
void AddSplitProjections(TensorRules* rules, const std::string& linear, const GatedDeltaSpec& delta);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_QWEN_HYBRID_H_
