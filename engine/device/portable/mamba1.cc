#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

constexpr int64_t kChannels = 32;  // of one task

void ScanBlock(const Mamba1Op& op, DType act, const MixerSlice& slice, int64_t first, int64_t count) {
  const Mamba1Spec& spec = *op.spec;
  const int64_t n = spec.state_size;
  const auto element = static_cast<int64_t>(DTypeSize(act));
  float* state = slice.state + spec.inner * (spec.conv_kernel - 1) + first * n;
  std::vector<float> a(static_cast<size_t>(count * n));
  for (int64_t i = 0; i < count * n; ++i) a[static_cast<size_t>(i)] = -std::exp(op.a_log[first * n + i]);
  for (int64_t i = 0; i < slice.count; ++i) {
    const int64_t row = slice.row0 + i;
    const float* b = op.b + row * op.bc_stride;
    const float* c = op.c + row * op.bc_stride;
    const float* x = op.x + row * spec.inner;
    const float* z = op.z + row * op.z_stride;
    std::byte* out = op.out_act + row * spec.inner * element;
    for (int64_t d = 0; d < count; ++d) {
      const int64_t channel = first + d;
      const float dt = reference::Softplus(op.dt[row * spec.inner + channel]);
      float* h = state + d * n;
      const float* rate = a.data() + d * n;
      float sum = 0;
      for (int64_t s = 0; s < n; ++s) {
        h[s] = std::exp(dt * rate[s]) * h[s] + dt * b[s] * x[channel];
        sum += h[s] * c[s];
      }
      const float y = (sum + op.d[channel] * x[channel]) * reference::Silu(z[channel]);
      reference::StoreAct(act, out, channel, y);
    }
  }
}

}  // namespace

void PortableBackend::Mamba1(const Mamba1Op& op) {
  const int64_t blocks = (op.spec->inner + kChannels - 1) / kChannels;
  const double work = 20.0 * static_cast<double>(op.rows * op.spec->inner * op.spec->state_size);
  ForTasks(static_cast<int64_t>(op.slices.size()) * blocks, work, [&](int64_t task) {
    const int64_t first = task % blocks * kChannels;
    const int64_t count = std::min(kChannels, op.spec->inner - first);
    ScanBlock(op, act_dtype(), op.slices[static_cast<size_t>(task / blocks)], first, count);
  });
}

}  // namespace moe
