#include "engine/sample/weights.h"

#include <algorithm>
#include <bit>

namespace moe {
namespace {

// value if keep, else +0, without a branch: compilers do not vectorise a choice between floating-point results.
inline float KeepIf(bool keep, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0u - static_cast<uint32_t>(keep)));
}

// exp(x) for x ≤ 0 as 2^n · e^r: a polynomial without a library call, so that its bits do not depend on the C library.
// NaN and x ≤ -87 (where float would soon become subnormal) give 0; what is computed for them before is thrown away.
inline float ExpNonPositive(float x) {
  // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // Cody-Waite: ln 2 in two parts.
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127u;
  return KeepIf(x > -87.0f, p * std::bit_cast<float>(exponent << 23));
}

double SumBlock(const float* w, int64_t n) {
  constexpr int kChains = 8;
  float chains[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (int c = 0; c < kChains; ++c) chains[c] += w[i + c];
  }
  for (int c = 0; i < n; ++i, ++c) chains[c] += w[i];
  double sum = 0;
  for (float c : chains) sum += c;
  return sum;
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
      w[i] = KeepIf(e >= floor, e);
    }
    const double sum = SumBlock(w + begin, end - begin);
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

double KeepNucleus(double target, float min_p, std::vector<float>& weights, std::vector<double>& block_sums,
                   std::vector<Candidate>& candidates) {
  const auto n = static_cast<int64_t>(weights.size());
  // Bits of positive floats are ordered like the floats: sums by their upper bits tell where the border is.
  constexpr int kShift = 17;
  const auto bucket_of = [](float w) { return std::bit_cast<uint32_t>(w) >> kShift; };
  std::vector<double>& buckets = block_sums;
  buckets.assign(size_t{1} << (31 - kShift), 0.0);
  for (int64_t i = 0; i < n; ++i) buckets[bucket_of(weights[i])] += weights[i];
  double before = 0;
  int64_t border = static_cast<int64_t>(buckets.size()) - 1;
  while (border > 0 && before + buckets[border] < target) before += buckets[border--];

  candidates.clear();
  for (int64_t i = 0; i < n; ++i) {
    if (bucket_of(weights[i]) == border) candidates.push_back({weights[i], static_cast<int32_t>(i)});
  }
  std::sort(candidates.begin(), candidates.end(), Before);
  // Rounding may leave the target above every sum: then all of the bucket stays.
  Candidate last = candidates.empty() ? Candidate{} : candidates.back();
  for (const Candidate& c : candidates) {
    before += c.value;
    if (before >= target) {
      last = c;
      break;
    }
  }
  double total = 0;
  block_sums.clear();
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = std::min(n, begin + kWeightBlock);
    for (int64_t i = begin; i < end; ++i) {
      const bool keep = weights[i] > last.value || (weights[i] == last.value && i <= last.id);
      if (!keep || weights[i] < min_p) weights[i] = 0.0f;
    }
    block_sums.push_back(SumBlock(weights.data() + begin, end - begin));
    total += block_sums.back();
  }
  return total;
}

}  // namespace moe
