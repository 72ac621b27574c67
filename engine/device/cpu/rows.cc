// Operations on rows: Embed, Norm, Round, Combine, AddRows, LogitStats.
#include <cmath>

#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {

void CpuBackend::Embed(const EmbedOp& op) {
  const WeightSource& t = op.table;
  const auto size = static_cast<int64_t>(DTypeSize(t.dtype));
  const bool fast = t.row_contiguous() && (t.dtype == DType::kF32 || t.dtype == DType::kBF16 || t.dtype == DType::kF16);
  ForRows(static_cast<int64_t>(op.ids.size()), t.cols, [&](int64_t r) {
    const std::byte* in = t.data + op.ids[r] * t.row_stride * size;
    float* out = op.out + r * t.cols;
    if (fast) {
      ops_->widen(reinterpret_cast<const char*>(in), ElementOf(t.dtype), t.cols, op.scale, out);
    } else {
      for (int64_t c = 0; c < t.cols; ++c) out[c] = LoadFloat(t.dtype, in + c * t.col_stride * size) * op.scale;
    }
  });
}

void CpuBackend::Norm(const NormOp& op) {
  const int64_t size = ElementSize(act_);
  ForRows(op.rows, 2 * op.dim, [&](int64_t r) {
    NormArgs a;
    a.x = op.x + r * op.stride;
    a.dim = op.dim;
    a.layer = op.spec.kind == NormKind::kLayer;
    a.weight_offset = op.spec.kind == NormKind::kRmsOffset;
    a.eps = op.spec.eps;
    a.weight = op.weight;
    a.bias = op.bias;
    if (op.out_f32 != nullptr) a.out_f32 = op.out_f32 + r * op.dim;
    if (op.out_act != nullptr) a.out_act = reinterpret_cast<char*>(op.out_act) + r * op.dim * size;
    a.act = act_;
    ops_->norm(a);
  });
}

void CpuBackend::Round(const RoundOp& op) {
  const int64_t size = ElementSize(act_);
  ForRows(op.rows, op.dim, [&](int64_t r) {
    ops_->round(op.x + r * op.stride, op.dim, reinterpret_cast<char*>(op.out_act) + r * op.dim * size, act_);
  });
}

void CpuBackend::Combine(const CombineOp& op) {
  const int64_t size = ElementSize(act_);
  ForRows(op.rows, (op.top_k + 1) * op.dim, [&](int64_t r) {
    CombineArgs a;
    a.top_k = op.top_k;
    a.dim = op.dim;
    a.slot_element = ElementOf(op.slot_dtype);
    a.slots = reinterpret_cast<const char* const*>(op.slot_rows.data() + r * op.top_k);
    a.weights = op.weights + r * op.top_k;
    a.scale = op.scale;
    if (op.out_act != nullptr) {
      a.out_act = reinterpret_cast<char*>(op.out_act) + r * op.dim * size;
    } else {
      a.out_f32 = op.out_f32 + r * op.dim;
    }
    a.act = act_;
    ops_->combine(a);
  });
}

void CpuBackend::AddRows(const AddRowsOp& op) {
  ForRows(op.rows, 2 * op.dim, [&](int64_t r) {
    float gate = op.gate == nullptr ? 1.0f : op.gate[r];
    if (op.sigmoid_gate) ops_->sigmoid(&gate, 1);
    ops_->add_scaled(op.dst + r * op.dim, op.src + r * op.dim, gate, op.dim);
  });
}

void CpuBackend::LogitStats(const LogitStatsOp& op) {
  ForRows(op.rows, 4 * op.vocab, [&](int64_t r) {
    RowStats stats;
    ops_->row_stats(op.logits + r * op.stride, op.vocab, &stats);
    op.argmax[r] = static_cast<int32_t>(stats.argmax);
    op.max[r] = stats.max;
    // An infinite maximum is the whole sum: no exp(inf - inf).
    op.log_sum_exp[r] = std::isinf(stats.max) ? stats.max : stats.max + std::log(stats.sum_exp);
  });
}

}  // namespace moe::cpu
