#include "parallel/placement.h"

#include <algorithm>

namespace moe {

ExpertPlacement ExpertPlacement::Linear(int64_t num_experts, int num_ranks) {
  std::vector<std::vector<int32_t>> ranks(num_experts);
  const int64_t base = num_experts / num_ranks;
  const int64_t extra = num_experts % num_ranks;
  int64_t expert = 0;
  for (int r = 0; r < num_ranks; ++r) {
    for (int64_t i = 0; i < base + (r < extra ? 1 : 0); ++i) ranks[expert++] = {r};
  }
  return {std::move(ranks), num_ranks};
}

ExpertPlacement ExpertPlacement::RoundRobin(int64_t num_experts, int num_ranks) {
  std::vector<std::vector<int32_t>> ranks(num_experts);
  for (int64_t e = 0; e < num_experts; ++e) ranks[e] = {static_cast<int32_t>(e % num_ranks)};
  return {std::move(ranks), num_ranks};
}

StatusOr<ExpertPlacement> ExpertPlacement::FromMap(std::vector<std::vector<int32_t>> ranks, int num_ranks) {
  for (size_t e = 0; e < ranks.size(); ++e) {
    std::vector<int32_t> sorted = ranks[e];
    std::sort(sorted.begin(), sorted.end());
    if (sorted.empty()) return InvalidError("placement: expert ", e, " has no rank");
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      return InvalidError("placement: expert ", e, " is twice on one rank");
    }
    if (sorted.front() < 0 || sorted.back() >= num_ranks) {
      return InvalidError("placement: expert ", e, " is on a rank outside [0, ", num_ranks, ")");
    }
  }
  return ExpertPlacement(std::move(ranks), num_ranks);
}

int32_t ExpertPlacement::Target(int64_t expert, int from) const {
  const std::vector<int32_t>& ranks = ranks_[expert];
  for (int32_t r : ranks) {
    if (r == from) return r;
  }
  return ranks[from % ranks.size()];
}

std::vector<int32_t> ExpertPlacement::ExpertsOf(int rank) const {
  std::vector<int32_t> experts;
  for (size_t e = 0; e < ranks_.size(); ++e) {
    if (std::find(ranks_[e].begin(), ranks_[e].end(), rank) != ranks_[e].end()) {
      experts.push_back(static_cast<int32_t>(e));
    }
  }
  return experts;
}

}  // namespace moe
