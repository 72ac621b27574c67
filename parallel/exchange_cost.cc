#include "parallel/exchange_cost.h"

#include <cmath>

namespace moe {
namespace {

// Probability that a token chooses none of `local` experts.
double AvoidsAll(const ExchangeShape& shape, int64_t local) {
  double p = 1;
  for (int64_t i = 0; i < shape.top_k; ++i) {
    p *= static_cast<double>(shape.num_experts - local - i) / static_cast<double>(shape.num_experts - i);
    if (p <= 0) return 0;
  }
  return p;
}

// x with P(standard normal ≤ x) = p.
double NormalQuantile(double p) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

}  // namespace

ExchangeBytes BytesOf(int num_ranks, int64_t row_bytes, uint64_t rows, uint64_t slots) {
  if (num_ranks == 1) return {};
  const auto n = static_cast<uint64_t>(num_ranks);
  const auto row = static_cast<uint64_t>(row_bytes);
  return {3 * sizeof(int32_t) * (n - 1), rows * row + slots * 2 * sizeof(int32_t), slots * row};
}

ExchangeCost ExpectedExchange(const ExchangeShape& shape) {
  ExchangeCost cost;
  if (shape.num_ranks == 1) return cost;
  const double n = shape.num_ranks;
  const double k = static_cast<double>(shape.top_k);
  const double experts = static_cast<double>(shape.num_experts);
  const int64_t least = shape.num_experts / shape.num_ranks;
  const auto more = static_cast<double>(shape.num_experts % shape.num_ranks);
  // Ranks touched by a token, then without its own: the owner is any rank with equal chance.
  const double touched = (n - more) * (1 - AvoidsAll(shape, least)) + more * (1 - AvoidsAll(shape, least + 1));
  cost.rows = touched * (n - 1) / n;
  cost.slots = k * (n - 1) / n;
  const double tokens = static_cast<double>(shape.rows_per_rank);
  const double row = static_cast<double>(shape.row_bytes);
  const double counts = static_cast<double>(BytesOf(shape.num_ranks, 0, 0, 0).counts);
  cost.bytes = cost.rows * row + cost.slots * (8 + row) + counts / tokens;
  cost.least_bytes = 2 * cost.rows * row;
  cost.exchanges = 3;
  cost.messages = 3 * (shape.num_ranks - 1);
  // A rank's rows are a sum over all tokens of hypergeometric numbers, about normal; the busiest of n is at Blom's
  // quantile. Experts that do not divide add what the fuller ranks have more.
  const double part = 1 / n;
  const double variance = experts > 1 ? n * tokens * k * part * (1 - part) * (experts - k) / (experts - 1) : 0;
  const double mean = tokens * k;
  const double uneven = more > 0 ? (static_cast<double>(least) + 1) * n / experts : 1;
  cost.imbalance = uneven + std::sqrt(variance) / mean * NormalQuantile((n - 0.375) / (n + 0.25));
  return cost;
}

}  // namespace moe
