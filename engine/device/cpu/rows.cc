// Operations on rows: Embed, Norm, Round, Combine, AddRows, Gate, LogitStats.
#include <cmath>

#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {

void CpuBackend::Embed(const EmbedOp& op) {
  const WeightSource& t = op.table;
  const auto size = static_cast<int64_t>(DTypeSize(t.dtype));
  const bool fast = t.row_contiguous() && (t.dtype == DType::kF32 || t.dtype == DType::kBF16 || t.dtype == DType::kF16);
  ForRows(static_cast<int64_t>(op.ids.size()), t.cols, [&](int64_t r) {
    const std::byte* in = t.data + t.RowOffset(op.ids[r]) * size;
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
  if (!op.spec.present()) {
    ForRows(op.rows, 2 * op.dim, [&](int64_t r) {
      const float* x = op.x + r * op.stride;
      if (op.out_f32 != nullptr) std::copy_n(x, op.dim, op.out_f32 + r * op.dim);
      if (op.out_act != nullptr) {
        ops_->round(x, op.dim, reinterpret_cast<char*>(op.out_act) + r * op.dim * size, act_);
      }
    });
    return;
  }
  const int64_t part = op.dim / op.spec.groups;
  ForRows(op.rows, 2 * op.dim, [&](int64_t r) {
    for (int64_t begin = 0; begin < op.dim; begin += part) {
      NormArgs a;
      a.x = op.x + r * op.stride + begin;
      a.dim = part;
      a.layer = op.spec.kind == NormKind::kLayer;
      a.weight_offset = op.spec.kind == NormKind::kRmsOffset;
      a.eps = op.spec.eps;
      if (op.weight != nullptr) a.weight = op.weight + begin;
      if (op.bias != nullptr) a.bias = op.bias + begin;
      if (op.out_f32 != nullptr) a.out_f32 = op.out_f32 + r * op.dim + begin;
      if (op.out_act != nullptr) a.out_act = reinterpret_cast<char*>(op.out_act) + (r * op.dim + begin) * size;
      a.act = act_;
      ops_->norm(a);
    }
  });
}

void CpuBackend::Round(const RoundOp& op) {
  const int64_t size = ElementSize(act_);
  ForRows(op.rows, op.dim, [&](int64_t r) {
    const float* x = op.x + r / op.repeat * op.stride;
    char* out = reinterpret_cast<char*>(op.out_act) + r * op.dim * size;
    if (op.row_scale == nullptr) {
      ops_->round(x, op.dim, out, act_);
      return;
    }
    // In pieces that the stack holds.
    constexpr int64_t kPiece = 1024;
    float piece[kPiece];
    for (int64_t i = 0; i < op.dim; i += kPiece) {
      const int64_t n = std::min(kPiece, op.dim - i);
      std::copy_n(x + i, n, piece);
      ops_->scale(piece, n, op.row_scale[r]);
      ops_->round(piece, n, out + i * size, act_);
    }
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
    if (op.weights != nullptr) a.weights = op.weights + r * op.top_k;
    a.bias = op.bias;
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
    if (op.skip != 1) ops_->scale(op.dst + r * op.dim, op.dim, op.skip);
    ops_->add_scaled(op.dst + r * op.dim, op.src + r * op.dim, op.scale * gate, op.dim);
  });
}

void CpuBackend::Gate(const GateOp& op) {
  if (op.kind == AttentionGate::kNone) return;
  const int64_t size = ElementSize(act_);
  const int64_t width = op.heads * op.head_dim;
  const bool per_element = PerElement(op.kind);
  ForRows(op.rows, (per_element ? 6 : 2) * width, [&](int64_t r) {
    for (int64_t h = 0; h < op.heads; ++h) {
      GateArgs a;
      a.x = reinterpret_cast<char*>(op.act) + (r * width + h * op.head_dim) * size;
      a.act = act_;
      a.count = op.head_dim;
      a.gate = op.gate + r * op.gate_stride + h * (per_element ? op.head_dim : 1);
      a.one_gate = !per_element;
      a.softplus = op.kind == AttentionGate::kHeadSoftplus || op.kind == AttentionGate::kElementSoftplus;
      if (op.head_bias != nullptr) a.bias = op.head_bias[h];
      ops_->gate_in_place(a);
    }
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
