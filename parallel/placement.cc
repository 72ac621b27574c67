#include "parallel/placement.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

Status CheckRanks(const std::vector<std::vector<int32_t>>& ranks, int num_ranks) {
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
  return absl::OkStatus();
}

}  // namespace

ExpertPlacement ExpertPlacement::Linear(int64_t num_experts, int num_ranks) {
  std::vector<std::vector<int32_t>> ranks(num_experts);
  const int64_t base = num_experts / num_ranks;
  const int64_t extra = num_experts % num_ranks;
  int64_t expert = 0;
  for (int r = 0; r < num_ranks; ++r) {
    for (int64_t i = 0; i < base + (r < extra ? 1 : 0); ++i) ranks[expert++] = {r};
  }
  return WithEvenShares(std::move(ranks), num_ranks);
}

ExpertPlacement ExpertPlacement::RoundRobin(int64_t num_experts, int num_ranks) {
  std::vector<std::vector<int32_t>> ranks(num_experts);
  for (int64_t e = 0; e < num_experts; ++e) ranks[e] = {static_cast<int32_t>(e % num_ranks)};
  return WithEvenShares(std::move(ranks), num_ranks);
}

ExpertPlacement ExpertPlacement::WithEvenShares(std::vector<std::vector<int32_t>> ranks, int num_ranks) {
  std::vector<std::vector<float>> shares(ranks.size());
  for (size_t e = 0; e < ranks.size(); ++e)
    shares[e].assign(ranks[e].size(), 1.0f / static_cast<float>(ranks[e].size()));
  return {std::move(ranks), std::move(shares), num_ranks};
}

StatusOr<ExpertPlacement> ExpertPlacement::FromMap(std::vector<std::vector<int32_t>> ranks, int num_ranks) {
  MOE_RETURN_IF_ERROR(CheckRanks(ranks, num_ranks));
  return WithEvenShares(std::move(ranks), num_ranks);
}

StatusOr<ExpertPlacement> ExpertPlacement::FromShares(std::vector<std::vector<int32_t>> ranks,
                                                      std::vector<std::vector<float>> shares, int num_ranks) {
  MOE_RETURN_IF_ERROR(CheckRanks(ranks, num_ranks));
  if (shares.size() != ranks.size()) {
    return InvalidError("placement: shares of ", shares.size(), " experts, ranks of ", ranks.size());
  }
  for (size_t e = 0; e < ranks.size(); ++e) {
    if (shares[e].size() != ranks[e].size()) {
      return InvalidError("placement: expert ", e, " has ", shares[e].size(), " shares for ", ranks[e].size(),
                          " ranks");
    }
    float sum = 0;
    bool negative = false;
    for (const float share : shares[e]) {
      negative |= !(share >= 0);
      sum += share;
    }
    if (negative || !(std::abs(sum - 1) <= 1e-3f)) {
      return InvalidError("placement: the shares of expert ", e, " are not parts of 1");
    }
  }
  return ExpertPlacement(std::move(ranks), std::move(shares), num_ranks);
}

bool ExpertPlacement::Holds(int64_t expert, int32_t rank) const {
  if (expert < 0 || expert >= num_experts()) return false;
  return std::find(ranks_[expert].begin(), ranks_[expert].end(), rank) != ranks_[expert].end();
}

std::vector<int32_t> ExpertPlacement::ExpertsOf(int rank) const {
  std::vector<int32_t> experts;
  for (size_t e = 0; e < ranks_.size(); ++e) {
    if (Holds(static_cast<int64_t>(e), rank)) experts.push_back(static_cast<int32_t>(e));
  }
  return experts;
}

}  // namespace moe
