// The mixers with a state per sequence as data: Mamba-1 and -2, gated delta rules, lightning attention, short
// convolutions.
#ifndef MOE_LOADERS_RECURRENT_SPEC_H_
#define MOE_LOADERS_RECURRENT_SPEC_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "loaders/attention_spec.h"
#include "loaders/norm_spec.h"

namespace moe {

// Mamba-2 as in Nemotron-H: in_proj → [z | x B C | dt], causal convolution and silu over [x B C], selective scan,
// grouped gated RMSNorm, out_proj. (Dao and Gu, arXiv:2405.21060.)
struct Mamba2Spec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t state_size = 0;
  int64_t num_groups = 0;   // B and C are shared by num_heads / num_groups heads; also the groups of the gated norm
  int64_t norm_groups = 0;  // groups of the gated norm; 0: num_groups
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  static constexpr int64_t kMaxConvKernel = 16;
  float norm_eps = 1e-5f;
  float dt_min = 0.0f;  // time_step_limit
  float dt_max = std::numeric_limits<float>::infinity();
  int64_t inner() const { return num_heads * head_dim; }
  int64_t conv_dim() const { return inner() + 2 * num_groups * state_size; }
  int64_t in_proj_rows() const { return inner() + conv_dim() + num_heads; }
  bool operator==(const Mamba2Spec&) const = default;
};

// Gated delta rule: Gated DeltaNet (arXiv:2412.06464) and Kimi delta attention (arXiv:2510.26692). Per value head,
// state M [k_head_dim, v_head_dim]:  M *= a;  d = sigmoid(b) (v - Mᵀk);  M += k dᵀ;  o = Mᵀ q, with q and k
// l2-normalised and q / sqrt(k_head_dim). q, k and v pass a causal depthwise convolution and silu first.
struct GatedDeltaSpec {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;  // a multiple; key head h serves value heads [h r, (h + 1) r)
  int64_t k_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  enum class Decay {
    kHead,         // a = exp(-exp(a_log) softplus(W_a x + dt_bias)), one a value head
    kChannel,      // … one a key channel, W_a in two factors f_a, f_b (decay_rank); num_k_heads == num_v_heads
    kSafeChannel,  // a = exp(decay_lower_bound * sigmoid(exp(a_log) (W_a x + dt_bias)))
  };
  Decay decay = Decay::kHead;
  float decay_lower_bound = -5.0f;
  int64_t decay_rank = 0;  // > 0: W_a = f_b f_a
  int64_t gate_rank = 0;   // > 0: W_z = g_b g_a
  bool gate_bias = false;  // of g_b
  enum class OutputGate { kSilu, kSigmoid };
  OutputGate output_gate = OutputGate::kSilu;
  NormSpec norm;  // over each value head of o, before the gate
  float l2_eps = 1e-6f;
  int64_t k_dim() const { return num_k_heads * k_head_dim; }
  int64_t v_dim() const { return num_v_heads * v_head_dim; }
  int64_t conv_dim() const { return 2 * k_dim() + v_dim(); }
  bool operator==(const GatedDeltaSpec&) const = default;
};

// Mamba-1 (arXiv:2312.00752) with Jamba's norms of dt, B and C.
struct Mamba1Spec {
  int64_t inner = 0;
  int64_t state_size = 0;
  int64_t dt_rank = 0;
  int64_t conv_kernel = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  NormSpec inner_norm;  // of dt, B and C; kNone without
  bool operator==(const Mamba1Spec&) const = default;
};

// Lightning attention: M = r M + k vᵀ, o = Mᵀ q, r = exp(-slope) fixed per head (arXiv:2401.04658). qkv = act(W x).
struct LightningSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  std::vector<double> slopes;  // [heads], ≥ 0
  bool silu_qkv = false;
  float query_scale = 1;
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec qk_norm_spec;
  std::optional<RopeSpec> rope;
  NormSpec norm;  // over all heads of o, before the sigmoid gate
  bool operator==(const LightningSpec&) const = default;
};

// Gated short convolution (LFM2): [B | C | x] = W h;  y = C * conv(B * x);  W_o y.
struct ShortConvSpec {
  int64_t channels = 0;  // H
  int64_t kernel = 0;
  bool bias = false;       // of the convolution
  bool proj_bias = false;  // of both projections
  bool operator==(const ShortConvSpec&) const = default;
};

}  // namespace moe

#endif  // MOE_LOADERS_RECURRENT_SPEC_H_
