// Conv: slice × channels.
#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {
namespace {

static_assert(kMaxConvKernel == Mamba2Spec::kMaxConvKernel);
static_assert(kMaxConvDilation == NgramSpec::kMaxN);
constexpr int64_t kConvChannels = 256;  // of a task

}  // namespace

void CpuBackend::Conv(const ConvOp& op) {
  const int64_t chunks = (op.channels + kConvChannels - 1) / kConvChannels;
  const int64_t past = (op.kernel - 1) * op.dilation;
  int64_t rows = 0;
  for (const MixerSlice& slice : op.slices) rows += slice.count;
  const auto num_slices = static_cast<int64_t>(op.slices.size());
  // A channel's window and weights come and go for each slice.
  const double work_ns = static_cast<double>((rows + 2 * num_slices) * op.channels);
  RunTasks(num_slices * chunks, work_ns, [&](int64_t task, int) {
    const MixerSlice& slice = op.slices[static_cast<size_t>(task / chunks)];
    const int64_t c = task % chunks * kConvChannels;
    const int64_t at = slice.row0 * op.stride + c;
    ConvArgs a;
    a.x = op.x + at;
    a.x_stride = op.stride;
    a.count = slice.count;
    a.channels = std::min(kConvChannels, op.channels - c);
    a.kernel = op.kernel;
    a.dilation = op.dilation;
    a.weight = op.weight + c * op.kernel;
    if (op.bias != nullptr) a.bias = op.bias + c;
    a.residual = op.residual;
    a.silu = op.silu;
    if (op.in_gate != nullptr) a.in_gate = op.in_gate + at;
    if (op.out_gate != nullptr) a.out_gate = op.out_gate + at;
    a.state = slice.state + op.state_offset + c * past;
    a.out_stride = op.out_stride > 0 ? op.out_stride : op.channels;
    if (op.out != nullptr) a.out = op.out + slice.row0 * a.out_stride + c;
    a.act = act_;
    a.out_act_row_bytes = op.channels * ElementSize(act_);
    if (op.out_act != nullptr) {
      a.out_act = reinterpret_cast<char*>(op.out_act) + slice.row0 * a.out_act_row_bytes + c * ElementSize(act_);
    }
    ops_->convolve(a);
  });
}

}  // namespace moe::cpu
