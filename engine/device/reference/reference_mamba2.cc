#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/reference/reference_math.h"
#include "engine/device/reference/reference_mixers.h"

namespace moe::reference {
namespace {

// Convolves one position's raw channels with the kernel - 1 inputs before it, then moves the window on.
// state: [conv_dim, kernel - 1], oldest first.
void ConvolveStep(const Mamba2Op& op, const float* raw, float* state, float* out) {
  const int64_t taps = op.spec->conv_kernel - 1;
  for (int64_t c = 0; c < op.spec->conv_dim(); ++c) {
    float* window = state + c * taps;
    const float* weight = op.conv_weight + c * (taps + 1);
    float sum = op.conv_bias == nullptr ? 0.0f : op.conv_bias[c];
    for (int64_t t = 0; t < taps; ++t) sum += weight[t] * window[t];
    sum += weight[taps] * raw[c];
    out[c] = Silu(sum);
    if (taps > 0) {
      std::copy(window + 1, window + taps, window);
      window[taps - 1] = raw[c];
    }
  }
}

}  // namespace

void Mamba2(const Mamba2Op& op, DType act) {
  const Mamba2Spec& spec = *op.spec;
  const int64_t inner = spec.inner();
  const int64_t n = spec.state_size;
  const int64_t heads_per_group = spec.num_heads / spec.num_groups;
  const int64_t norm_groups = spec.norm_groups > 0 ? spec.norm_groups : spec.num_groups;
  const int64_t norm_group = inner / norm_groups;
  const auto element = static_cast<int64_t>(DTypeSize(act));
  std::vector<float> conv(spec.conv_dim());
  std::vector<float> y(inner);
  const NormSpec norm{NormKind::kRms, spec.norm_eps, false};
  for (const MixerSlice& slice : op.slices) {
    for (int64_t i = 0; i < slice.count; ++i) {
      const int64_t r = slice.row0 + i;
      const float* z = op.proj + r * spec.in_proj_rows();
      const float* raw = z + inner;
      const float* dt_raw = raw + spec.conv_dim();
      ConvolveStep(op, raw, slice.state, conv.data());
      const float* x = conv.data();
      for (int64_t h = 0; h < spec.num_heads; ++h) {
        const float dt = std::clamp(Softplus(dt_raw[h] + op.dt_bias[h]), spec.dt_min, spec.dt_max);
        const float decay = std::exp(dt * -std::exp(op.a_log[h]));
        const float* b = x + inner + (h / heads_per_group) * n;
        const float* c = b + spec.num_groups * n;
        for (int64_t p = 0; p < spec.head_dim; ++p) {
          const float value = x[h * spec.head_dim + p];
          float* state = slice.state + spec.conv_dim() * (spec.conv_kernel - 1) + (h * spec.head_dim + p) * n;
          float sum = 0;
          for (int64_t s = 0; s < n; ++s) {
            state[s] = decay * state[s] + (dt * value) * b[s];
            sum += state[s] * c[s];
          }
          y[h * spec.head_dim + p] = sum + op.d[h] * value;
        }
      }
      for (int64_t d = 0; d < inner; ++d) y[d] *= Silu(z[d]);
      for (int64_t g = 0; g < norm_groups; ++g) {
        float* part = y.data() + g * norm_group;
        NormRow(norm, part, norm_group, op.norm + g * norm_group, nullptr, part);
      }
      for (int64_t d = 0; d < inner; ++d) StoreAct(act, op.out_act + r * inner * element, d, y[d]);
    }
  }
}

}  // namespace moe::reference
