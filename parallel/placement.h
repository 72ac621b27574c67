// ExpertPlacement: which ranks hold which experts. An immutable value; rebalancing makes a new one and swaps it between
// two steps. A replica computes the same bits, so the choice among replicas never shows in results.
#ifndef MOE_PARALLEL_PLACEMENT_H_
#define MOE_PARALLEL_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

class ExpertPlacement {
 public:
  // Experts in contiguous runs; the first num_experts % num_ranks ranks hold one more.
  static ExpertPlacement Linear(int64_t num_experts, int num_ranks);
  // Expert e on rank e % num_ranks.
  static ExpertPlacement RoundRobin(int64_t num_experts, int num_ranks);
  // ranks[e]: the ranks that hold expert e, at least one each, no rank twice.
  static StatusOr<ExpertPlacement> FromMap(std::vector<std::vector<int32_t>> ranks, int num_ranks);

  int64_t num_experts() const { return static_cast<int64_t>(ranks_.size()); }
  int num_ranks() const { return num_ranks_; }
  std::span<const int32_t> RanksOf(int64_t expert) const { return ranks_[expert]; }
  // The rank that computes `expert` for a row of `from`: itself if it holds the expert, else a replica chosen by
  // `from`, so that different senders spread over the replicas.
  int32_t Target(int64_t expert, int from) const;
  std::vector<int32_t> ExpertsOf(int rank) const;  // ascending

 private:
  ExpertPlacement(std::vector<std::vector<int32_t>> ranks, int num_ranks)
      : ranks_(std::move(ranks)), num_ranks_(num_ranks) {}

  std::vector<std::vector<int32_t>> ranks_;
  int num_ranks_;
};

}  // namespace moe

#endif  // MOE_PARALLEL_PLACEMENT_H_
