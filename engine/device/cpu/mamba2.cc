// Mamba2: convolution over channels, scan over heads, gated norm over rows, in passes of a bounded number of positions.
#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {
namespace {

constexpr int64_t kConvChannels = 256;

}  // namespace

void CpuBackend::Mamba2(const Mamba2Op& op) {
  ForPasses(op.slices, [&](const Pass& pass) { Mamba2Pass(op, pass); });
}

void CpuBackend::Mamba2Pass(const Mamba2Op& op, const Pass& pass) {
  const std::span<const MixerSlice> slices = pass.slices;
  const int64_t rows = pass.rows();
  const Mamba2Spec& spec = *op.spec;
  const int64_t inner = spec.inner();
  const int64_t conv_dim = spec.conv_dim();
  const int64_t proj = spec.in_proj_rows();
  const int64_t heads = spec.num_heads;
  const int64_t size = ElementSize(act_);
  const auto num_slices = static_cast<int64_t>(slices.size());
  const int64_t conv_stride = Pass::Stride(conv_dim);
  const int64_t y_stride = Pass::Stride(inner);
  float* conv = conv_.GetAs<float>(static_cast<size_t>(rows * conv_stride));
  float* y = y_.GetAs<float>(static_cast<size_t>(rows * y_stride));
  float* dt = dt_.GetAs<float>(static_cast<size_t>(2 * rows * heads));
  float* decay = dt + rows * heads;

  // 1. Convolution (slice × channels) and step sizes (slice).
  const int64_t chunks = (conv_dim + kConvChannels - 1) / kConvChannels;
  RunTasks(num_slices * (chunks + 1), static_cast<double>(rows * conv_dim), [&](int64_t task, int) {
    const int64_t s = task / (chunks + 1);
    const int64_t chunk = task % (chunks + 1);
    const MixerSlice& slice = slices[s];
    const int64_t first = pass.first[s];
    const float* in = op.proj + slice.row0 * proj + inner;
    if (chunk == chunks) {
      for (int64_t i = 0; i < slice.count; ++i) {
        ops_->softplus_decay(in + i * proj + conv_dim, op.dt_bias, op.a_log, heads, spec.dt_min, spec.dt_max,
                             dt + (first + i) * heads, decay + (first + i) * heads);
      }
      return;
    }
    const int64_t c = chunk * kConvChannels;
    ConvArgs a;
    a.x = in + c;
    a.x_stride = proj;
    a.count = slice.count;
    a.channels = std::min(kConvChannels, conv_dim - c);
    a.kernel = spec.conv_kernel;
    a.weight = op.conv_weight + c * spec.conv_kernel;
    a.bias = op.conv_bias == nullptr ? nullptr : op.conv_bias + c;
    a.state = slice.state + c * (spec.conv_kernel - 1);
    a.silu = true;
    a.out = conv + first * conv_stride + c;
    a.out_stride = conv_stride;
    ops_->convolve(a);
  });

  // 2. Scan (slice × head).
  const int64_t heads_per_group = heads / spec.num_groups;
  const double scan_ns = static_cast<double>(rows * inner * spec.state_size) / 8;
  RunTasks(num_slices * heads, scan_ns, [&](int64_t task, int) {
    const MixerSlice& slice = slices[task / heads];
    const int64_t h = task % heads;
    const int64_t first = pass.first[task / heads];
    ScanArgs a;
    a.count = slice.count;
    a.head_dim = spec.head_dim;
    a.state_size = spec.state_size;
    a.x = conv + first * conv_stride + h * spec.head_dim;
    a.b = conv + first * conv_stride + inner + h / heads_per_group * spec.state_size;
    a.c = a.b + spec.num_groups * spec.state_size;
    a.x_stride = conv_stride;
    a.dt = dt + first * heads + h;
    a.decay = decay + first * heads + h;
    a.dt_stride = heads;
    a.d = op.d[h];
    a.state = slice.state + conv_dim * (spec.conv_kernel - 1) + h * spec.head_dim * spec.state_size;
    a.y = y + first * y_stride + h * spec.head_dim;
    a.y_stride = y_stride;
    ops_->scan(a);
  });

  // 3. Gate, norm, round (row × group).
  const int64_t norm_groups = spec.norm_groups > 0 ? spec.norm_groups : spec.num_groups;
  const int64_t norm_dim = inner / norm_groups;
  RunTasks(rows, static_cast<double>(rows * inner), [&](int64_t row, int) {
    const int64_t source = pass.source[row];
    for (int64_t g = 0; g < norm_groups; ++g) {
      GatedNormArgs a;
      a.y = y + row * y_stride + g * norm_dim;
      a.z = op.proj + source * proj + g * norm_dim;
      a.dim = norm_dim;
      a.eps = spec.norm_eps;
      a.weight = op.norm + g * norm_dim;
      a.out = reinterpret_cast<char*>(op.out_act) + (source * inner + g * norm_dim) * size;
      a.act = act_;
      ops_->gated_norm(a);
    }
  });
}

}  // namespace moe::cpu
