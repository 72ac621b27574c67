// The fixed decays of lightning attention.
#ifndef MOE_LOADERS_ARCHITECTURES_LIGHTNING_H_
#define MOE_LOADERS_ARCHITECTURES_LIGHTNING_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace moe {

// factor * 2^(-8 (h + 1) / n) for each of n heads.
inline std::vector<double> GeometricSlopes(int64_t n, double factor) {
  std::vector<double> slopes;
  for (int64_t h = 0; h < n; ++h) {
    slopes.push_back(factor * std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(n)));
  }
  return slopes;
}

// ALiBi's slopes (arXiv:2108.12409): as above for a power of two; otherwise those of the next lower power of two, then
// every other one of the next higher.
inline std::vector<double> AlibiSlopes(int64_t n, double factor) {
  int64_t power = 1;
  while (2 * power <= n) power *= 2;
  std::vector<double> slopes = GeometricSlopes(power, factor);
  const std::vector<double> between = GeometricSlopes(2 * power, factor);
  for (int64_t i = 0; power + i < n; ++i) slopes.push_back(between[static_cast<size_t>(2 * i)]);
  return slopes;
}

// How much of the slopes is left in layer l.
inline double LightningDepthFactor(int64_t l, int64_t num_layers) {
  const double depth = num_layers <= 1 ? 0.0 : static_cast<double>(l) / static_cast<double>(num_layers - 1);
  return 1 - depth + 1e-5;
}

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_LIGHTNING_H_
