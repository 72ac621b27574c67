// Mamba1: scan over (slice, channels).
#include "engine/device/cpu/cpu_backend.h"

namespace moe::cpu {
namespace {

constexpr int64_t kScanChannels = 64;  // of a task

}  // namespace

void CpuBackend::Mamba1(const Mamba1Op& op) {
  const Mamba1Spec& spec = *op.spec;
  const int64_t size = spec.state_size;
  const int64_t blocks = (spec.inner + kScanChannels - 1) / kScanChannels;
  const int64_t element = ElementSize(act_);
  const auto num_slices = static_cast<int64_t>(op.slices.size());
  float* rates = per_thread_.GetAs<float>(static_cast<size_t>(threads_ * kScanChannels * size));
  const double work_ns = static_cast<double>((op.rows + num_slices) * spec.inner * size);
  RunTasks(num_slices * blocks, work_ns, [&](int64_t task, int thread) {
    const MixerSlice& slice = op.slices[static_cast<size_t>(task / blocks)];
    const int64_t c = task % blocks * kScanChannels;
    Mamba1Args a;
    a.count = slice.count;
    a.channels = std::min(kScanChannels, spec.inner - c);
    a.state_size = size;
    a.x = op.x + slice.row0 * spec.inner + c;
    a.dt = op.dt + slice.row0 * spec.inner + c;
    a.x_stride = spec.inner;
    a.z = op.z + slice.row0 * op.z_stride + c;
    a.z_stride = op.z_stride;
    a.b = op.b + slice.row0 * op.bc_stride;
    a.c = op.c + slice.row0 * op.bc_stride;
    a.bc_stride = op.bc_stride;
    a.a_log = op.a_log + c * size;
    a.d = op.d + c;
    a.state = slice.state + spec.inner * (spec.conv_kernel - 1) + c * size;
    a.rate = rates + thread * kScanChannels * size;
    a.out_row_bytes = spec.inner * element;
    a.out = reinterpret_cast<char*>(op.out_act) + slice.row0 * a.out_row_bytes + c * element;
    a.act = act_;
    ops_->mamba1(a);
  });
}

}  // namespace moe::cpu
