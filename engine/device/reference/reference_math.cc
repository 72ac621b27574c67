#include "engine/device/reference/reference_math.h"

#include <algorithm>

namespace moe::reference {

void NormRow(const NormSpec& spec, const float* x, int64_t n, const float* weight, const float* bias, float* out) {
  if (!spec.present()) {
    if (out != x) std::copy_n(x, n, out);
    return;
  }
  if (spec.groups > 1) {
    NormSpec part = spec;
    part.groups = 1;
    const int64_t size = n / spec.groups;
    for (int64_t begin = 0; begin < n; begin += size) {
      NormRow(part, x + begin, size, weight == nullptr ? nullptr : weight + begin,
              bias == nullptr ? nullptr : bias + begin, out + begin);
    }
    return;
  }
  float mean = 0;
  if (spec.kind == NormKind::kLayer) {
    for (int64_t i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<float>(n);
  }
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + spec.eps);
  for (int64_t i = 0; i < n; ++i) {
    float value = (x[i] - mean) * scale;
    if (weight != nullptr) value *= spec.kind == NormKind::kRmsOffset ? 1.0f + weight[i] : weight[i];
    if (bias != nullptr) value += bias[i];
    out[i] = value;
  }
}

void RotationAt(const RopeSpec& rope, int64_t position, float* cos, float* sin, bool long_context) {
  const bool use_long = long_context && rope.original_positions > 0;
  const std::vector<double>& frequencies = use_long ? rope.long_inv_freq : rope.inv_freq;
  const double scale = use_long ? rope.long_cos_sin_scale : rope.cos_sin_scale;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    // The angle is rounded to float32 as the reference implementations do; its sine is then taken exactly.
    const float angle = static_cast<float>(position) * static_cast<float>(frequencies[j]);
    cos[j] = static_cast<float>(std::cos(static_cast<double>(angle)) * scale);
    sin[j] = static_cast<float>(std::sin(static_cast<double>(angle)) * scale);
  }
}

void RotateHead(RopeSpec::Layout layout, const float* cos, const float* sin, int64_t half, float* head) {
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = layout == RopeSpec::Layout::kHalfSplit ? i : 2 * i;
    const int64_t b = layout == RopeSpec::Layout::kHalfSplit ? i + half : 2 * i + 1;
    const float x = head[a];
    const float y = head[b];
    head[a] = x * cos[i] - y * sin[i];
    head[b] = y * cos[i] + x * sin[i];
  }
}

}  // namespace moe::reference
