// What an MoE layer's exchange costs, as formulas: what the Dispatcher's counters come to for given rows, and what to
// expect of uniformly random routing. README.md beside this has the table for 8…256 ranks.
#ifndef MOE_PARALLEL_EXCHANGE_COST_H_
#define MOE_PARALLEL_EXCHANGE_COST_H_

#include <cstdint>

namespace moe {

// Bytes that a rank's tokens cause in one layer call; exact. Counts and dispatch leave the rank, combine comes back.
// rows: (token, rank ≠ own) pairs in which the rank has an expert of the token; slots: (token, top-k slot) pairs
// computed elsewhere.
struct ExchangeBytes {
  uint64_t counts = 0;    // three numbers for each other rank
  uint64_t dispatch = 0;  // rows, and 8 bytes of (row, expert) a slot
  uint64_t combine = 0;   // one row a slot
};
ExchangeBytes BytesOf(int num_ranks, int64_t row_bytes, uint64_t rows, uint64_t slots);

struct ExchangeShape {
  int num_ranks = 1;
  int64_t num_experts = 1;  // placed evenly (ranks differ by at most one), without replicas
  int64_t top_k = 1;        // different experts a token
  int64_t row_bytes = 0;
  int64_t rows_per_rank = 0;  // tokens that each rank brings to a step
};

// Expected values for uniformly random routing.
struct ExchangeCost {
  double rows = 0;         // as above, per token
  double slots = 0;        // as above, per token
  double bytes = 0;        // per token: counts, dispatch and combine
  double least_bytes = 0;  // per token, if each rank touched added up its slots first (which would change the bits)
  int exchanges = 0;       // per layer call; a rank exchanges with all others in each
  int64_t messages = 0;    // per layer call and rank
  double imbalance = 1;    // busiest rank's rows over the mean, by chance alone
};
ExchangeCost ExpectedExchange(const ExchangeShape& shape);

}  // namespace moe

#endif  // MOE_PARALLEL_EXCHANGE_COST_H_
