// GatedDelta: heads of rows made ready, scan over (slice, head, columns), norm and gate of rows; in passes.
#include <cmath>

#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {

void CpuBackend::GatedDelta(const GatedDeltaOp& op) {
  ForPasses(op.slices, [&](const Pass& pass) { GatedDeltaPass(op, pass); });
}

void CpuBackend::GatedDeltaPass(const GatedDeltaOp& op, const Pass& pass) {
  const GatedDeltaSpec& spec = *op.spec;
  const int64_t rows = pass.rows();
  const int64_t heads = spec.num_v_heads;
  const int64_t k_heads = spec.num_k_heads;
  const int64_t k_head_dim = spec.k_head_dim;
  const int64_t v_head_dim = spec.v_head_dim;
  const bool by_channel = spec.decay != GatedDeltaSpec::Decay::kHead;
  // Rows of the scratch: [q | k | k·q of each key head | decays | sigmoid(beta)], and o.
  const int64_t kq_at = 2 * spec.k_dim();
  const int64_t decay_at = kq_at + k_heads;
  const int64_t decays = by_channel ? spec.k_dim() : heads;
  const int64_t beta_at = decay_at + decays;
  const int64_t width = Pass::Stride(beta_at + heads);
  const int64_t o_width = Pass::Stride(spec.v_dim());
  float* ready = conv_.GetAs<float>(static_cast<size_t>(rows * width));
  float* o = y_.GetAs<float>(static_cast<size_t>(rows * o_width));

  // 1. q, k, decay and beta (row).
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(k_head_dim));
  ForRows(rows, 2 * width, [&](int64_t row) {
    const int64_t source = pass.source[static_cast<size_t>(row)];
    float* out = ready + row * width;
    for (int64_t h = 0; h < k_heads; ++h) {
      DeltaHeadArgs a;
      a.q = op.qkv + source * spec.conv_dim() + h * k_head_dim;
      a.k = a.q + spec.k_dim();
      a.dim = k_head_dim;
      a.eps = spec.l2_eps;
      a.q_scale = q_scale;
      a.q_out = out + h * k_head_dim;
      a.k_out = a.q_out + spec.k_dim();
      a.kq = out + kq_at + h;
      ops_->delta_heads(a);
    }
    DeltaDecayArgs a;
    a.safe = spec.decay == GatedDeltaSpec::Decay::kSafeChannel;
    a.lower_bound = spec.decay_lower_bound;
    a.one_rate = by_channel;
    a.count = by_channel ? k_head_dim : heads;
    for (int64_t at = 0; at < decays; at += a.count) {
      a.x = op.decay + source * op.decay_stride + at;
      a.bias = op.dt_bias + at;
      a.a_log = op.a_log + (by_channel ? at / k_head_dim : 0);
      a.out = out + decay_at + at;
      ops_->delta_decay(a);
    }
    std::copy_n(op.beta + source * op.beta_stride, heads, out + beta_at);
    ops_->sigmoid(out + beta_at, heads);
  });

  // 2. Scan (slice × head × columns).
  const auto num_slices = static_cast<int64_t>(pass.slices.size());
  const int64_t parts = ColumnParts(num_slices * heads, v_head_dim);
  const int64_t columns = v_head_dim / parts;
  const int64_t scratch_floats = k_head_dim * (kDeltaColumns + 16);
  float* scratch = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * scratch_floats));
  const double states = static_cast<double>(spec.v_dim() * k_head_dim);
  RunTasks(num_slices * heads * parts, states * static_cast<double>(rows + num_slices) / 8,
           [&](int64_t task, int thread) {
             const auto s = static_cast<size_t>(task / (heads * parts));
             const MixerSlice& slice = pass.slices[s];
             const int64_t head = task / parts % heads;
             const int64_t k_head = head / (heads / k_heads);
             const int64_t column = head * v_head_dim + task % parts * columns;
             const float* row = ready + pass.first[s] * width;
             DeltaArgs a;
             a.count = slice.count;
             a.k_dim = k_head_dim;
             a.columns = columns;
             a.q = row + k_head * k_head_dim;
             a.k = a.q + spec.k_dim();
             a.kq = row + kq_at + k_head;
             a.decay = row + decay_at + (by_channel ? head * k_head_dim : head);
             a.decay_by_channel = by_channel;
             a.beta = row + beta_at + head;
             a.qk_stride = a.kq_stride = a.decay_stride = a.beta_stride = width;
             a.v = op.qkv + slice.row0 * spec.conv_dim() + 2 * spec.k_dim() + column;
             a.v_stride = spec.conv_dim();
             a.state = slice.state + spec.conv_dim() * (spec.conv_kernel - 1) + head * k_head_dim * v_head_dim +
                       task % parts * columns;
             a.state_stride = v_head_dim;
             a.out = o + pass.first[s] * o_width + column;
             a.out_stride = o_width;
             a.scratch = scratch + thread * scratch_floats;
             ops_->gated_delta(a);
           });

  // 3. Norm, gate, round (row).
  const int64_t size = ElementSize(act_);
  ForRows(rows, 4 * spec.v_dim(), [&](int64_t row) {
    const int64_t source = pass.source[static_cast<size_t>(row)];
    for (int64_t h = 0; h < heads; ++h) {
      NormInPlace(spec.norm, op.norm, v_head_dim, o + row * o_width + h * v_head_dim);
    }
    ops_->gate(o + row * o_width, op.z + source * op.z_stride, spec.v_dim(),
               spec.output_gate == GatedDeltaSpec::OutputGate::kSilu,
               reinterpret_cast<char*>(op.out_act) + source * spec.v_dim() * size, act_);
  });
}

}  // namespace moe::cpu
