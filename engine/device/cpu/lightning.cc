// Lightning: q, k and v of rows made ready, scan over (slice, head, columns), norm and gate of rows; in passes.
#include <cmath>

#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {

void CpuBackend::Lightning(const LightningOp& op) {
  ForPasses(op.slices, [&](const Pass& pass) { LightningPass(op, pass); });
}

void CpuBackend::LightningPass(const LightningOp& op, const Pass& pass) {
  const LightningSpec& spec = *op.spec;
  const int64_t rows = pass.rows();
  const int64_t heads = spec.num_heads;
  const int64_t dim = spec.head_dim;
  const int64_t width = heads * dim;
  const int64_t stride = Pass::Stride(3 * width);
  const int64_t o_stride = Pass::Stride(width);
  float* qkv = conv_.GetAs<float>(static_cast<size_t>(rows * stride));
  float* o = y_.GetAs<float>(static_cast<size_t>(rows * o_stride));

  // 1. Activation, norms, rotation, the query's factor (row).
  const auto prepare = [&](int64_t source, const float* weight, float* x) {
    if (spec.qk_norm == QkNorm::kPerHead) {
      NormSpec one = spec.qk_norm_spec;
      one.groups = 1;
      for (int64_t h = 0; h < heads; ++h) NormInPlace(one, weight, dim, x + h * dim);
    } else if (spec.qk_norm == QkNorm::kFullWidth) {
      NormSpec one = spec.qk_norm_spec;
      one.groups = 1;
      NormInPlace(one, weight, width, x);
    }
    if (!spec.rope) return;
    const int64_t half = spec.rope->rotary_dim / 2;
    for (int64_t h = 0; h < heads; ++h) {
      ops_->rotate(x + h * dim, half, spec.rope->layout == RopeSpec::Layout::kInterleaved, op.cos + source * half,
                   op.sin + source * half);
    }
  };
  ForRows(rows, 6 * width, [&](int64_t row) {
    const int64_t source = pass.source[static_cast<size_t>(row)];
    const float* in = op.qkv + source * op.qkv_stride;
    float* out = qkv + row * stride;
    if (spec.silu_qkv) {
      ops_->silu(in, 3 * width, out);
    } else {
      std::copy_n(in, 3 * width, out);
    }
    prepare(source, op.q_norm, out);
    if (spec.query_scale != 1) ops_->scale(out, width, spec.query_scale);
    prepare(source, op.k_norm, out + width);
  });

  // 2. Scan (slice × head × columns).
  const auto num_slices = static_cast<int64_t>(pass.slices.size());
  const int64_t parts = ColumnParts(num_slices * heads, dim);
  const int64_t columns = dim / parts;
  const double states = static_cast<double>(width * dim);
  RunTasks(num_slices * heads * parts, states * static_cast<double>(rows + num_slices) / 8, [&](int64_t task, int) {
    const auto s = static_cast<size_t>(task / (heads * parts));
    const MixerSlice& slice = pass.slices[s];
    const int64_t head = task / parts % heads;
    LightningArgs a;
    a.count = slice.count;
    a.dim = dim;
    a.column = task % parts * columns;
    a.columns = columns;
    a.q = qkv + pass.first[s] * stride + head * dim;
    a.k = a.q + width;
    a.v = a.k + width;
    a.stride = stride;
    a.keep = static_cast<float>(std::exp(-spec.slopes[static_cast<size_t>(head)]));
    a.state = slice.state + head * dim * dim;
    a.out = o + pass.first[s] * o_stride + head * dim;
    a.out_stride = o_stride;
    ops_->lightning(a);
  });

  // 3. Norm, gate, round (row).
  ForRows(rows, 4 * width, [&](int64_t row) {
    const int64_t source = pass.source[static_cast<size_t>(row)];
    NormInPlace(spec.norm, op.norm, width, o + row * o_stride);
    ops_->gate(o + row * o_stride, op.gate + source * op.gate_stride, width, false,
               reinterpret_cast<char*>(op.out_act) + source * width * ElementSize(act_), act_);
  });
}

}  // namespace moe::cpu
