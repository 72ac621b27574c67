#include "parallel/replica_chooser.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel/base/check.h"

namespace moe {
namespace {

// Steps of the golden ratio round the unit circle leave any number of rows spread about evenly. Senders start at steps
// of another irrational number, so that any few of them with a row each are spread too.
constexpr double kStep = 0.6180339887498949;
constexpr double kStart = 0.4142135623730950;

}  // namespace

void ReplicaChooser::Begin(const ExpertPlacement& placement, int sender, std::span<const int32_t> rows_of_rank) {
  placement_ = &placement;
  sender_ = sender;
  const int num_ranks = placement.num_ranks();
  const int64_t total = std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), int64_t{0});
  // A sender without rows in the estimate has some after all: the estimate is of no use.
  if (total == 0 || rows_of_rank[sender] == 0) {
    rows_of_rank_.assign(num_ranks, 1.0 / num_ranks);
  } else {
    MOE_CHECK_EQ(static_cast<int>(rows_of_rank.size()), num_ranks);
    rows_of_rank_.resize(num_ranks);
    for (int r = 0; r < num_ranks; ++r) {
      rows_of_rank_[r] = static_cast<double>(rows_of_rank[r]) / static_cast<double>(total);
    }
  }
  spread_of_.assign(placement.num_experts(), -1);
  spreads_.clear();
  bounds_.clear();
}

int32_t ReplicaChooser::Prepare(int32_t expert) {
  const auto ranks = placement_->RanksOf(expert);
  const auto shares = placement_->SharesOf(expert);
  // In parts of the expert's rows: a replica's rank keeps its own rows up to the replica's share; what the replica
  // lacks then comes from the rows that the senders do not keep, in equal parts of each sender's.
  double lacking = 0;
  double kept = 0;  // of this sender's rows
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double mine = rows_of_rank_[ranks[i]];
    const double keeps = std::min(mine, static_cast<double>(shares[i]));
    lacking += static_cast<double>(shares[i]) - keeps;
    if (ranks[i] == sender_) kept = keeps / mine;
  }
  const auto index = static_cast<int32_t>(spreads_.size());
  const double start = (sender_ + 0.5) * kStart;
  spreads_.push_back({static_cast<int32_t>(bounds_.size()), start - std::floor(start)});
  double bound = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double share = shares[i];
    const double lacks = share - std::min(rows_of_rank_[ranks[i]], share);
    if (lacking > 0) bound += (1 - kept) * lacks / lacking;
    if (ranks[i] == sender_) bound += kept;
    bounds_.push_back(bound);
  }
  spread_of_[expert] = index;
  return index;
}

int32_t ReplicaChooser::NextOfSeveral(int32_t expert) {
  int32_t index = spread_of_[expert];
  if (index < 0) index = Prepare(expert);
  Spread& spread = spreads_[index];
  const auto ranks = placement_->RanksOf(expert);
  // The bounds end at 1 but for rounding; they are scaled by where they do end.
  const double* bounds = bounds_.data() + spread.begin;
  const double at = spread.position * bounds[ranks.size() - 1];
  size_t i = 0;
  while (i + 1 < ranks.size() && at >= bounds[i]) ++i;
  spread.position += kStep;
  if (spread.position >= 1) spread.position -= 1;
  return ranks[i];
}

}  // namespace moe
