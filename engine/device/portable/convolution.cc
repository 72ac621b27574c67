#include <algorithm>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

constexpr int64_t kChannels = 64;  // of one task: neighbouring channels fill the lanes of a vector
constexpr int64_t kMaxTaps = Mamba2Spec::kMaxConvKernel;
constexpr int64_t kMaxWindow = (kMaxTaps - 1) * NgramSpec::kMaxN;

// One block of channels of one slice. The window is kept position by position here, channel by channel in the state.
void ConvolveBlock(const ConvOp& op, DType act, const MixerSlice& slice, int64_t first, int64_t count) {
  const int64_t taps = op.kernel - 1;
  const int64_t past = taps * op.dilation;
  float weight[kMaxTaps][kChannels];
  float window[kMaxWindow][kChannels];
  float* state = slice.state + op.state_offset + first * past;
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t t = 0; t <= taps; ++t) weight[t][c] = op.weight[(first + c) * op.kernel + t];
    for (int64_t t = 0; t < past; ++t) window[t][c] = state[c * past + t];
  }
  const auto element = static_cast<int64_t>(DTypeSize(act));
  int64_t oldest = 0;  // the window is a ring
  for (int64_t i = 0; i < slice.count; ++i) {
    const int64_t row = slice.row0 + i;
    const int64_t at = row * op.stride + first;
    float in[kChannels];
    float sum[kChannels];
    for (int64_t c = 0; c < count; ++c) in[c] = op.x[at + c];
    if (op.in_gate != nullptr) {
      for (int64_t c = 0; c < count; ++c) in[c] *= op.in_gate[at + c];
    }
    for (int64_t c = 0; c < count; ++c) sum[c] = op.bias == nullptr ? 0.0f : op.bias[first + c];
    for (int64_t t = 0; t < taps; ++t) {
      const float* input = window[(oldest + t * op.dilation) % past];
      for (int64_t c = 0; c < count; ++c) sum[c] += weight[t][c] * input[c];
    }
    for (int64_t c = 0; c < count; ++c) sum[c] += weight[taps][c] * in[c];
    if (past > 0) {
      std::copy_n(in, count, window[oldest]);
      oldest = (oldest + 1) % past;
    }
    if (op.residual) {
      for (int64_t c = 0; c < count; ++c) sum[c] += in[c];
    }
    if (op.silu) {
      for (int64_t c = 0; c < count; ++c) sum[c] = reference::Silu(sum[c]);
    }
    if (op.out_gate != nullptr) {
      for (int64_t c = 0; c < count; ++c) sum[c] *= op.out_gate[at + c];
    }
    const int64_t out_stride = op.out_stride > 0 ? op.out_stride : op.channels;
    if (op.out != nullptr) std::copy_n(sum, count, op.out + row * out_stride + first);
    if (op.out_act != nullptr) {
      std::byte* out = op.out_act + row * op.channels * element;
      for (int64_t c = 0; c < count; ++c) reference::StoreAct(act, out, first + c, sum[c]);
    }
  }
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t t = 0; t < past; ++t) state[c * past + t] = window[(oldest + t) % past][c];
  }
}

}  // namespace

void PortableBackend::Conv(const ConvOp& op) {
  const int64_t blocks = (op.channels + kChannels - 1) / kChannels;
  int64_t rows = 0;
  for (const MixerSlice& slice : op.slices) rows += slice.count;
  const double work = static_cast<double>(rows * op.channels * (op.kernel + (op.silu ? 16 : 2)));
  ForTasks(static_cast<int64_t>(op.slices.size()) * blocks, work, [&](int64_t task) {
    const int64_t first = task % blocks * kChannels;
    const int64_t count = std::min(kChannels, op.channels - first);
    ConvolveBlock(op, act_dtype(), op.slices[static_cast<size_t>(task / blocks)], first, count);
  });
}

}  // namespace moe
