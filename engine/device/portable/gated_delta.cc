#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

using Spec = GatedDeltaSpec;

// out = x / sqrt(Σ x² + eps) * scale.
void L2Normalize(const float* x, int64_t n, float eps, float scale, float* out) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(sum + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * inverse * scale;
}

// One value head of one slice.
class DeltaHead {
 public:
  DeltaHead(const GatedDeltaOp& op, DType act, const MixerSlice& slice, int64_t head)
      : op_(op),
        spec_(*op.spec),
        act_(act),
        slice_(slice),
        head_(head),
        k_dim_(spec_.k_head_dim),
        v_dim_(spec_.v_head_dim),
        scratch_(static_cast<size_t>(3 * k_dim_ + 3 * v_dim_)),
        q_(scratch_.data()),
        k_(q_ + k_dim_),
        decay_(k_ + k_dim_),
        read_(decay_ + k_dim_),
        delta_(read_ + v_dim_),
        out_(delta_ + v_dim_),
        rate_(std::exp(op.a_log[head])) {}

  void Run() {
    float* state = slice_.state + spec_.conv_dim() * (spec_.conv_kernel - 1) + head_ * k_dim_ * v_dim_;
    for (int64_t i = 0; i < slice_.count; ++i) {
      Step(slice_.row0 + i, state);
      Write(slice_.row0 + i);
    }
  }

 private:
  void Step(int64_t row, float* state) {
    const int64_t key_head = head_ / (spec_.num_v_heads / spec_.num_k_heads);
    const float* q = op_.qkv + row * spec_.conv_dim() + key_head * k_dim_;
    const float* v = op_.qkv + row * spec_.conv_dim() + 2 * spec_.k_dim() + head_ * v_dim_;
    L2Normalize(q, k_dim_, spec_.l2_eps, 1.0f / std::sqrt(static_cast<float>(k_dim_)), q_);
    L2Normalize(q + spec_.k_dim(), k_dim_, spec_.l2_eps, 1.0f, k_);
    Decay(row);
    const float beta = reference::Sigmoid(op_.beta[row * op_.beta_stride + head_]);
    std::fill_n(read_, v_dim_, 0.0f);
    for (int64_t i = 0; i < k_dim_; ++i) {
      float* m = state + i * v_dim_;
      const float decay = decay_[i];
      const float key = k_[i];
      for (int64_t j = 0; j < v_dim_; ++j) {
        m[j] *= decay;
        read_[j] += m[j] * key;
      }
    }
    for (int64_t j = 0; j < v_dim_; ++j) delta_[j] = (v[j] - read_[j]) * beta;
    std::fill_n(out_, v_dim_, 0.0f);
    for (int64_t i = 0; i < k_dim_; ++i) {
      float* m = state + i * v_dim_;
      const float key = k_[i];
      const float query = q_[i];
      for (int64_t j = 0; j < v_dim_; ++j) {
        m[j] += key * delta_[j];
        out_[j] += m[j] * query;
      }
    }
  }

  // What each row of the state is multiplied by.
  void Decay(int64_t row) {
    const float* raw = op_.decay + row * op_.decay_stride;
    if (spec_.decay == Spec::Decay::kHead) {
      std::fill_n(decay_, k_dim_, std::exp(-rate_ * reference::Softplus(raw[head_] + op_.dt_bias[head_])));
      return;
    }
    const int64_t first = head_ * k_dim_;
    for (int64_t i = 0; i < k_dim_; ++i) {
      const float x = raw[first + i] + op_.dt_bias[first + i];
      decay_[i] = spec_.decay == Spec::Decay::kSafeChannel
                      ? std::exp(spec_.decay_lower_bound * reference::Sigmoid(rate_ * x))
                      : std::exp(-rate_ * reference::Softplus(x));
    }
  }

  void Write(int64_t row) {
    if (spec_.norm.present()) reference::NormRow(spec_.norm, out_, v_dim_, op_.norm, nullptr, out_);
    const float* z = op_.z + row * op_.z_stride + head_ * v_dim_;
    std::byte* out = op_.out_act + row * spec_.v_dim() * static_cast<int64_t>(DTypeSize(act_));
    for (int64_t j = 0; j < v_dim_; ++j) {
      const float gate =
          spec_.output_gate == Spec::OutputGate::kSilu ? reference::Silu(z[j]) : reference::Sigmoid(z[j]);
      reference::StoreAct(act_, out, head_ * v_dim_ + j, out_[j] * gate);
    }
  }

  const GatedDeltaOp& op_;
  const Spec& spec_;
  const DType act_;
  const MixerSlice& slice_;
  const int64_t head_;
  const int64_t k_dim_;
  const int64_t v_dim_;
  std::vector<float> scratch_;
  float* const q_;      // [k_dim], normalised and scaled
  float* const k_;      // [k_dim], normalised
  float* const decay_;  // [k_dim]
  float* const read_;   // [v_dim]: Mᵀ k
  float* const delta_;  // [v_dim]
  float* const out_;    // [v_dim]
  const float rate_;
};

}  // namespace

void PortableBackend::GatedDelta(const GatedDeltaOp& op) {
  const int64_t heads = op.spec->num_v_heads;
  const double per_row = static_cast<double>(4 * op.spec->v_dim() * op.spec->k_head_dim);
  ForTasks(static_cast<int64_t>(op.slices.size()) * heads, static_cast<double>(op.rows) * per_row, [&](int64_t task) {
    DeltaHead(op, act_dtype(), op.slices[static_cast<size_t>(task / heads)], task % heads).Run();
  });
}

}  // namespace moe
