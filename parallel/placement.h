// ExpertPlacement: which ranks hold which experts. An immutable value; rebalancing makes a new one and swaps it between
// two steps. A replica computes the same bits, so the choice among replicas never shows in results.
#ifndef MOE_PARALLEL_PLACEMENT_H_
#define MOE_PARALLEL_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// [MoE layers] experts, ascending.
using ExpertLists = std::vector<std::vector<int32_t>>;

class ExpertPlacement {
 public:
  // Experts in contiguous runs; the first num_experts % num_ranks ranks hold one more.
  static ExpertPlacement Linear(int64_t num_experts, int num_ranks);
  // Expert e on rank e % num_ranks.
  static ExpertPlacement RoundRobin(int64_t num_experts, int num_ranks);
  // ranks[e]: the ranks that hold expert e, at least one each, no rank twice. Its rows spread evenly over them.
  static StatusOr<ExpertPlacement> FromMap(std::vector<std::vector<int32_t>> ranks, int num_ranks);
  // shares[e][i] ≥ 0: the part of expert e's rows that ranks[e][i] computes; each expert's sum to 1 (within 1e-3).
  static StatusOr<ExpertPlacement> FromShares(std::vector<std::vector<int32_t>> ranks,
                                              std::vector<std::vector<float>> shares, int num_ranks);

  int64_t num_experts() const { return static_cast<int64_t>(ranks_.size()); }
  int num_ranks() const { return num_ranks_; }
  std::span<const int32_t> RanksOf(int64_t expert) const { return ranks_[expert]; }
  // Also for an id that is no expert: nobody holds it.
  bool Holds(int64_t expert, int32_t rank) const;
  // As RanksOf, the parts of the expert's rows; which row goes where is the sender's choice (ReplicaChooser).
  std::span<const float> SharesOf(int64_t expert) const { return shares_[expert]; }
  std::vector<int32_t> ExpertsOf(int rank) const;  // ascending

 private:
  ExpertPlacement(std::vector<std::vector<int32_t>> ranks, std::vector<std::vector<float>> shares, int num_ranks)
      : ranks_(std::move(ranks)), shares_(std::move(shares)), num_ranks_(num_ranks) {}
  static ExpertPlacement WithEvenShares(std::vector<std::vector<int32_t>> ranks, int num_ranks);

  std::vector<std::vector<int32_t>> ranks_;
  std::vector<std::vector<float>> shares_;
  int num_ranks_;
};

}  // namespace moe

#endif  // MOE_PARALLEL_PLACEMENT_H_
