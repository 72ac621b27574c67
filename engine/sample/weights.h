// Softmax weights of a row and a draw from them by inverse distribution function, in one defined order.
#ifndef MOE_ENGINE_SAMPLE_WEIGHTS_H_
#define MOE_ENGINE_SAMPLE_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sample/top_select.h"

namespace moe {

// Weights are summed in blocks of this many; a draw finds its block first.
inline constexpr int64_t kWeightBlock = 1024;

// weights[i] = exp((values[i] - max) * inv_temperature), 0 for NaN and below e^-87. Within 2e-7 of the exact value,
// relative. block_sums[b] is the float sum of block b in eight interleaved chains; returns the sum of the blocks.
// With `floor` > 0 smaller weights become 0 (min_p: the largest weight is 1).
double ComputeWeights(std::span<const float> values, float max, float inv_temperature, float floor,
                      std::vector<float>& weights, std::vector<double>& block_sums);

// The same exponential for one value, the same bits.
float WeightOf(float value, float max, float inv_temperature);

// The token where the running sum, in order of ids, first exceeds u · total; -1 when total is not positive.
int32_t DrawById(std::span<const float> weights, std::span<const double> block_sums, double total, double u);

// Zeroes the weights outside the smallest set of the largest whose sum reaches `target` (equal ones: lower ids first)
// and those below min_p; renews block_sums and returns the sum of what is left. A few passes; only weights close to the
// border are sorted. `candidates` is a buffer. REQUIRES: no weight is negative or NaN.
double KeepNucleus(double target, float min_p, std::vector<float>& weights, std::vector<double>& block_sums,
                   std::vector<Candidate>& candidates);

}  // namespace moe

#endif  // MOE_ENGINE_SAMPLE_WEIGHTS_H_
