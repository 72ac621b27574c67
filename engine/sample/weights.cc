#include "engine/sample/weights.h"

#include <algorithm>
#include <bit>

namespace moe {
namespace {

// exp(x) for x ≤ 0 from 2^n · 2^f: a polynomial that the compiler vectorises without a library call, so that its bits
// do not depend on the C library. NaN and x < -87 (where float would become subnormal) give 0.
inline float ExpNonPositive(float x) {
  const float clamped = x > -87.0f ? x : -87.0f;
  const float t = clamped * 1.44269504f;
  // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer and leaves it in the low bits.
  const float shifted = t + 12582912.0f;
  const float n = shifted - 12582912.0f;
  // Cody-Waite: ln 2 in two parts.
  float r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f)) + 127;
  const float scale = std::bit_cast<float>(exponent << 23);
  return x > -87.0f ? p * scale : 0.0f;
}

}  // namespace

float WeightOf(float value, float max, float inv_temperature) {
  return ExpNonPositive((value - max) * inv_temperature);
}

double ComputeWeights(std::span<const float> values, float max, float inv_temperature, float floor,
                      std::vector<float>& weights, std::vector<double>& block_sums) {
  const int64_t n = static_cast<int64_t>(values.size());
  weights.resize(n);
  block_sums.clear();
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = std::min(n, begin + kWeightBlock);
    const float* in = values.data();
    float* w = weights.data();
    for (int64_t i = begin; i < end; ++i) {
      const float e = ExpNonPositive((in[i] - max) * inv_temperature);
      w[i] = e >= floor ? e : 0.0f;
    }
    constexpr int kChains = 8;
    float chains[kChains] = {};
    int64_t i = begin;
    for (; i + kChains <= end; i += kChains) {
      for (int c = 0; c < kChains; ++c) chains[c] += w[i + c];
    }
    for (int c = 0; i < end; ++i, ++c) chains[c] += w[i];
    double sum = 0;
    for (float c : chains) sum += c;
    block_sums.push_back(sum);
    total += sum;
  }
  return total;
}

int32_t DrawById(std::span<const float> weights, std::span<const double> block_sums, double total, double u) {
  if (!(total > 0)) return -1;
  const double target = u * total;
  double before = 0;
  // Rounding may leave the target at or above the last running sum: then the last block with any weight is the one.
  int64_t block = -1;
  double block_before = 0;
  for (size_t b = 0; b < block_sums.size(); ++b) {
    if (block_sums[b] > 0) {
      block = static_cast<int64_t>(b);
      block_before = before;
    }
    before += block_sums[b];
    if (before > target) break;
  }
  const int64_t begin = block * kWeightBlock;
  const int64_t end = std::min<int64_t>(static_cast<int64_t>(weights.size()), begin + kWeightBlock);
  double sum = block_before;
  int64_t last = begin;
  for (int64_t i = begin; i < end; ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return static_cast<int32_t>(last);
}

}  // namespace moe
