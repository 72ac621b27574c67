// Operations of the mixers with a state per sequence, position by position (N6).
#ifndef MOE_ENGINE_DEVICE_RECURRENT_OPS_H_
#define MOE_ENGINE_DEVICE_RECURRENT_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/device_tensors.h"
#include "loaders/recurrent_spec.h"

namespace moe {

// Causal depthwise convolution along the positions of each slice, then silu where asked: y[p, c] = f(Σ_i w[c, i] x[p -
// (K
// - 1 - i) · dilation, c] + bias[c]). Reads and moves on the window at the start of the slice's state, offset by
// state_offset floats: [channels, (kernel - 1) * dilation], oldest input first.
struct ConvOp {
  const float* x = nullptr;  // [rows, channels]
  int64_t stride = 0;
  int64_t channels = 0;
  int64_t kernel = 0;
  int64_t dilation = 1;           // at most NgramSpec::kMaxN
  const float* weight = nullptr;  // [channels, kernel]
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
  const float* in_gate = nullptr;   // multiplies x before all this: [rows, channels] with x's stride, or null
  const float* out_gate = nullptr;  // multiplies y: likewise
  int64_t state_offset = 0;
  std::span<const MixerSlice> slices;
  bool residual = false;         // y += x, before silu and gates
  float* out = nullptr;          // [rows, channels], or null; x itself where out_stride is x's
  int64_t out_stride = 0;        // 0: channels
  std::byte* out_act = nullptr;  // [rows, channels] in act, or null
};

// Mamba-2 between its two projections: convolution + silu, dt, recurrence, D, grouped gated norm. Position by position
// in float32, so a prompt cut anywhere gives the same bits (N6).
struct Mamba2Op {
  const Mamba2Spec* spec = nullptr;
  const float* proj = nullptr;  // [rows, in_proj_rows] = [z | x B C | dt]
  int64_t rows = 0;
  const float* conv_weight = nullptr;  // [conv_dim, kernel]
  const float* conv_bias = nullptr;    // [conv_dim] or null
  const float* dt_bias = nullptr;      // [heads]
  const float* a_log = nullptr;        // [heads]
  const float* d = nullptr;            // [heads]
  const float* norm = nullptr;         // [inner]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, inner]
};

// The gated delta rule behind its convolution, with output norm and gate (GatedDeltaSpec), position by position.
// State: behind the window, [value heads, k_head_dim, v_head_dim].
struct GatedDeltaOp {
  const GatedDeltaSpec* spec = nullptr;
  const float* qkv = nullptr;    // [rows, conv_dim] = [q | k | v] after convolution and silu
  const float* decay = nullptr;  // [rows, value heads] or [rows, k_dim]: W_a x
  const float* beta = nullptr;   // [rows, value heads]: W_b x
  const float* z = nullptr;      // [rows, v_dim]: the output gate before its activation
  int64_t decay_stride = 0;
  int64_t beta_stride = 0;
  int64_t z_stride = 0;
  int64_t rows = 0;
  const float* a_log = nullptr;    // [value heads]
  const float* dt_bias = nullptr;  // [value heads] or [k_dim]
  const float* norm = nullptr;     // [v_head_dim]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, v_dim]
};

// Mamba-1's selective scan: dt = softplus(dt), A = -exp(a_log), h = exp(dt A) h + dt B x, y = (C·h + D x) * silu(z).
// State: behind the window, [inner, state].
struct Mamba1Op {
  const Mamba1Spec* spec = nullptr;
  const float* x = nullptr;  // [rows, inner] after convolution and silu
  const float* z = nullptr;  // [rows, inner]
  int64_t z_stride = 0;
  const float* dt = nullptr;  // [rows, inner] with its bias, before softplus
  const float* b = nullptr;   // [rows, state], normed
  const float* c = nullptr;   // [rows, state], normed
  int64_t bc_stride = 0;
  int64_t rows = 0;
  const float* a_log = nullptr;  // [inner, state]
  const float* d = nullptr;      // [inner]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, inner]
};

// Lightning attention with its activation, norms, RoPE, output norm and gate. State: [heads, head_dim, head_dim].
struct LightningOp {
  const LightningSpec* spec = nullptr;
  const float* qkv = nullptr;   // [rows, 3 * width] = [q | k | v] as projected
  const float* gate = nullptr;  // [rows, width] before sigmoid
  int64_t qkv_stride = 0;
  int64_t gate_stride = 0;
  int64_t rows = 0;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* norm = nullptr;  // [width]
  const float* cos = nullptr;   // [rows, rotary_dim / 2]
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, width]
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_RECURRENT_OPS_H_
