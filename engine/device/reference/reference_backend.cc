// The reference backend: every operation as the plainest loop over its definition. Slow on purpose; the other backends
// are tested against it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"
#include "engine/device/reference/reference_mixers.h"
#include "engine/device/reference/reference_weights.h"
#include "engine/device/reference/route_row.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

using reference::LoadAct;
using reference::StoreAct;

class ReferenceBackend : public PortableBackend {
 public:
  explicit ReferenceBackend(DType act) : act_(act) {}

  std::string name() const override { return "reference"; }
  DType act_dtype() const override { return act_; }

  std::unique_ptr<PackedMatrix> Pack(std::span<const WeightSource> parts, DType format) override {
    return std::make_unique<ReferenceMatrix>(parts, format);
  }
  std::unique_ptr<PackedExperts> PackExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                                             const std::function<void(int64_t)>& release) override {
    return std::make_unique<ReferenceExperts>(experts, gated, format, release);
  }
  void SetExpert(PackedExperts* experts, int64_t expert, const ExpertSource* source) override {
    static_cast<ReferenceExperts*>(experts)->Set(expert, source);
  }

  void Embed(const EmbedOp& op) override {
    const auto element = static_cast<int64_t>(DTypeSize(op.table.dtype));
    float* out = op.out;
    for (int32_t id : op.ids) {
      for (int64_t c = 0; c < op.table.cols; ++c) {
        const std::byte* in = op.table.data + (op.table.RowOffset(id) + c * op.table.col_stride) * element;
        *out++ = LoadFloat(op.table.dtype, in) * op.scale;
      }
    }
  }

  void Norm(const NormOp& op) override {
    std::vector<float> row(op.dim);
    const auto element = static_cast<int64_t>(DTypeSize(act_));
    for (int64_t r = 0; r < op.rows; ++r) {
      reference::NormRow(op.spec, op.x + r * op.stride, op.dim, op.weight, op.bias, row.data());
      if (op.out_f32 != nullptr) std::copy(row.begin(), row.end(), op.out_f32 + r * op.dim);
      for (int64_t i = 0; op.out_act != nullptr && i < op.dim; ++i) {
        StoreAct(act_, op.out_act + r * op.dim * element, i, row[i]);
      }
    }
  }

  void Round(const RoundOp& op) override {
    const auto element = static_cast<int64_t>(DTypeSize(act_));
    for (int64_t r = 0; r < op.rows; ++r) {
      for (int64_t i = 0; i < op.dim; ++i) {
        const float scale = op.row_scale == nullptr ? 1.0f : op.row_scale[r];
        StoreAct(act_, op.out_act + r * op.dim * element, i, scale * op.x[r / op.repeat * op.stride + i]);
      }
    }
  }

  void Gemm(const GemmOp& op) override {
    const auto& w = static_cast<const ReferenceMatrix&>(*op.w);
    for (int64_t r = 0; r < op.a.rows; ++r) {
      const float* a = Widen(op.a.dtype, op.a.row(r), w.cols());
      for (int64_t n = 0; n < w.rows(); ++n) {
        float sum = Dot(w, n, a);
        if (op.bias != nullptr) sum += op.bias[n];
        float& out = op.out[r * op.out_stride + n];
        out = op.accumulate ? out + sum : sum;
      }
    }
  }

  void Route(const RouteOp& op) override {
    RouteScratch scratch;
    for (int64_t r = 0; r < op.rows; ++r) {
      RouteRow(*op.spec, {op.logits + r * op.num_experts, static_cast<size_t>(op.num_experts)}, op.logit_bias,
               op.select_bias, op.expert_scale, op.top_k, op.ids + r * op.top_k, op.weights + r * op.top_k, scratch,
               op.given == nullptr ? nullptr : op.given + r * op.top_k);
    }
  }

  void Experts(const ExpertsOp& op) override {
    const auto& experts = static_cast<const ReferenceExperts&>(*op.experts);
    const int64_t width = experts.width();
    const int64_t intermediate = experts.intermediate();
    const auto act_element = static_cast<int64_t>(DTypeSize(act_));
    const auto out_element = static_cast<int64_t>(DTypeSize(op.out_dtype));
    std::vector<std::byte> hidden(static_cast<size_t>(intermediate * act_element));
    for (const ExpertGroup& group : op.groups) {
      const ReferenceExperts::Expert& expert = experts.expert(group.expert);
      for (int64_t r = group.begin; r < group.end; ++r) {
        const float* x = Widen(act_, op.rows[r], width);
        for (int64_t i = 0; i < intermediate; ++i) {
          const auto bias = [&](const float* values, int64_t size, int64_t at) {
            return values == nullptr ? 0.0f : values[group.expert * size + at];
          };
          const float up = Dot(*expert.up, i, x) + bias(op.up_bias, intermediate, i);
          const float value =
              expert.gate == nullptr
                  ? reference::PlainActivation(op.activation, up)
                  : reference::GatedActivation(op.activation, op.limit, op.alpha,
                                               Dot(*expert.gate, i, x) + bias(op.gate_bias, intermediate, i), up);
          StoreAct(act_, hidden.data(), i, value);
        }
        const float* h = Widen(act_, hidden.data(), intermediate);
        for (int64_t c = 0; c < width; ++c) {
          const float bias = op.down_bias == nullptr ? 0.0f : op.down_bias[group.expert * width + c];
          StoreAct(op.out_dtype, op.out + r * width * out_element, c, Dot(*expert.down, c, h) + bias);
        }
      }
    }
  }

  void Combine(const CombineOp& op) override {
    const auto element = static_cast<int64_t>(DTypeSize(act_));
    for (int64_t t = 0; t < op.rows; ++t) {
      for (int64_t i = 0; i < op.dim; ++i) {
        float sum = 0;
        for (int64_t s = 0; s < op.top_k; ++s) {
          const int64_t slot = t * op.top_k + s;
          sum += (op.weights == nullptr ? 1.0f : op.weights[slot]) * LoadAct(op.slot_dtype, op.slot_rows[slot], i);
        }
        sum *= op.scale;
        if (op.bias != nullptr) sum += op.bias[i];
        if (op.out_act != nullptr) {
          StoreAct(act_, op.out_act + t * op.dim * element, i, sum);
        } else {
          op.out_f32[t * op.dim + i] += sum;
        }
      }
    }
  }

  void AddRows(const AddRowsOp& op) override {
    for (int64_t r = 0; r < op.rows; ++r) {
      float gate = op.gate == nullptr ? 1.0f : op.gate[r];
      if (op.sigmoid_gate) gate = reference::Sigmoid(gate);
      gate *= op.scale;
      for (int64_t i = 0; i < op.dim; ++i) {
        float& dst = op.dst[r * op.dim + i];
        dst = op.skip * dst + gate * op.src[r * op.dim + i];
      }
    }
  }

  void Qkv(const QkvOp& op) override { reference::Qkv(op, act_); }
  void Attention(const AttentionOp& op) override {
    if (op.selection != nullptr) {
      SelectedAttention(op);
    } else {
      reference::Attention(op, act_);
    }
  }
  void Mamba2(const Mamba2Op& op) override { reference::Mamba2(op, act_); }

  void LogitStats(const LogitStatsOp& op) override {
    for (int64_t r = 0; r < op.rows; ++r) {
      const float* row = op.logits + r * op.stride;
      int64_t best = 0;
      for (int64_t v = 1; v < op.vocab; ++v) {
        if (row[v] > row[best] || (std::isnan(row[best]) && !std::isnan(row[v]))) best = v;
      }
      double sum = 0;
      for (int64_t v = 0; v < op.vocab; ++v) sum += std::exp(static_cast<double>(row[v]) - row[best]);
      op.argmax[r] = static_cast<int32_t>(best);
      op.max[r] = row[best];
      op.log_sum_exp[r] = static_cast<float>(row[best] + std::log(sum));
    }
  }

 protected:
  void ForTasks(int64_t count, double, const std::function<void(int64_t)>& fn) override {
    for (int64_t task = 0; task < count; ++task) fn(task);
  }
  void StoreKey(const float* key, int64_t head_dim, int64_t token, std::byte* block) override {
    std::byte* to = block + token * head_dim * static_cast<int64_t>(DTypeSize(act_));
    for (int64_t d = 0; d < head_dim; ++d) StoreAct(act_, to, d, key[d]);
  }
  void StoreValue(const float* value, int64_t v_head_dim, int64_t token, std::byte* block) override {
    StoreKey(value, v_head_dim, token, block);
  }
  void LoadKey(const std::byte* block, int64_t head_dim, int64_t token, float* key) const override {
    const std::byte* from = block + token * head_dim * static_cast<int64_t>(DTypeSize(act_));
    for (int64_t d = 0; d < head_dim; ++d) key[d] = LoadAct(act_, from, d);
  }
  void LoadValue(const std::byte* block, int64_t v_head_dim, int64_t token, float* value) const override {
    LoadKey(block, v_head_dim, token, value);
  }

 private:
  // Σ_k w[n, k] · a[k], ascending k, float32. `a` has been widened.
  static float Dot(const ReferenceMatrix& w, int64_t n, const float* a) {
    float sum = 0;
    for (int64_t k = 0; k < w.cols(); ++k) sum += w.At(n, k) * a[k];
    return sum;
  }

  // One act row as float32; valid until the next call.
  const float* Widen(DType dtype, const std::byte* row, int64_t n) {
    widened_.resize(n);
    for (int64_t i = 0; i < n; ++i) widened_[i] = LoadAct(dtype, row, i);
    return widened_.data();
  }

  std::vector<float> widened_;
  DType act_;
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend(DType act) {
  MOE_CHECK(act == DType::kBF16 || act == DType::kF32);
  return std::make_unique<ReferenceBackend>(act);
}

}  // namespace moe
