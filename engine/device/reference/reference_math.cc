#include "engine/device/reference/reference_math.h"

namespace moe::reference {

void NormRow(const NormSpec& spec, const float* x, int64_t n, const float* weight, const float* bias, float* out) {
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
