#include "parallel/replica_chooser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace moe {
namespace {

// rows[s] rows of each sender, all for expert 0; received[r] and kept rows.
struct Outcome {
  std::vector<int64_t> received;
  int64_t kept = 0;
};
Outcome Spread(const ExpertPlacement& placement, const std::vector<int32_t>& rows, bool known = true) {
  Outcome outcome;
  outcome.received.resize(placement.num_ranks());
  for (int s = 0; s < placement.num_ranks(); ++s) {
    ReplicaChooser chooser;
    chooser.Begin(placement, s, known ? std::span<const int32_t>(rows) : std::span<const int32_t>());
    for (int32_t i = 0; i < rows[s]; ++i) {
      const int32_t rank = chooser.Next(0);
      ++outcome.received[rank];
      outcome.kept += rank == s;
    }
  }
  return outcome;
}

TEST(ReplicaChooser, OneReplicaTakesAll) {
  const ExpertPlacement placement = ExpertPlacement::RoundRobin(5, 2);
  ReplicaChooser chooser;
  chooser.Begin(placement, 0, {});
  EXPECT_EQ(chooser.Next(3), 1);
  EXPECT_EQ(chooser.Next(4), 0);
}

// Whoever brings the rows, replicas get their shares.
TEST(ReplicaChooser, SharesHoldForAnySenders) {
  for (const std::vector<float>& shares : {std::vector<float>{0.5f, 0.3f, 0.2f}, std::vector<float>{0.05f, 0.0f, 0.95f},
                                           std::vector<float>{1 / 3.0f, 1 / 3.0f, 1 / 3.0f}}) {
    const auto placement = ExpertPlacement::FromShares({{1, 2, 5}}, {shares}, 6);
    ASSERT_TRUE(placement.ok()) << placement.status();
    for (const std::vector<int32_t>& rows :
         {std::vector<int32_t>{100, 100, 100, 100, 100, 100}, std::vector<int32_t>{0, 0, 600, 0, 0, 0},
          std::vector<int32_t>{0, 0, 0, 600, 0, 0}, std::vector<int32_t>{300, 150, 80, 40, 20, 10},
          std::vector<int32_t>{0, 300, 0, 0, 0, 300}}) {
      const Outcome outcome = Spread(*placement, rows);
      const double total = std::accumulate(rows.begin(), rows.end(), 0.0);
      const std::vector<int32_t> ranks{1, 2, 5};
      for (size_t i = 0; i < 3; ++i) {
        // Each sender is off by less than two rows (golden-ratio steps), most by less than one.
        EXPECT_NEAR(static_cast<double>(outcome.received[ranks[i]]), shares[i] * total, 8) << "replica " << i;
      }
    }
  }
}

TEST(ReplicaChooser, RowsStayAsFarAsSharesAllow) {
  const auto placement = ExpertPlacement::FromMap({{0, 1}}, 4);
  ASSERT_TRUE(placement.ok());
  // Equal senders: ranks 0 and 1 keep theirs, 2 and 3 split theirs.
  const Outcome even = Spread(*placement, {100, 100, 100, 100});
  EXPECT_EQ(even.kept, 200);
  EXPECT_NEAR(static_cast<double>(even.received[0]), 200, 2);
  // Rank 0 has 300 of 400 rows: it keeps 200, its share, and the rest goes to rank 1.
  const Outcome uneven = Spread(*placement, {300, 100, 0, 0});
  EXPECT_NEAR(static_cast<double>(uneven.received[0]), 200, 2);
  EXPECT_NEAR(static_cast<double>(uneven.kept), 300, 2);
}

// With few rows each, the senders' choices together still meet the shares: they start at different positions.
TEST(ReplicaChooser, OneRowEachSpreadsOut) {
  const auto placement = ExpertPlacement::FromShares({{0, 1}}, {{0.25f, 0.75f}}, 64);
  ASSERT_TRUE(placement.ok());
  const Outcome outcome = Spread(*placement, std::vector<int32_t>(64, 1));
  EXPECT_NEAR(static_cast<double>(outcome.received[0]), 16, 1.5);
}

TEST(ReplicaChooser, AWrongEstimateIsOnlyLessEven) {
  const auto placement = ExpertPlacement::FromMap({{0, 2}}, 3);
  ASSERT_TRUE(placement.ok());
  ReplicaChooser chooser;
  chooser.Begin(*placement, 0, std::vector<int32_t>{0, 5, 5});  // we have rows after all
  for (int i = 0; i < 10; ++i) {
    const int32_t rank = chooser.Next(0);
    EXPECT_TRUE(rank == 0 || rank == 2);
  }
  EXPECT_EQ(Spread(*placement, {10, 10, 10}, false).kept, 20) << "nothing known: as if equal";
}

TEST(ReplicaChooser, TheSameCallChoosesTheSame) {
  const auto placement = ExpertPlacement::FromMap({{0, 1, 2}, {1, 2}}, 3);
  ASSERT_TRUE(placement.ok());
  std::vector<int32_t> first;
  ReplicaChooser chooser;
  for (int call = 0; call < 2; ++call) {
    chooser.Begin(*placement, 0, std::vector<int32_t>{50, 3, 4});
    for (int i = 0; i < 50; ++i) {
      const int32_t rank = chooser.Next(i % 2);
      if (call == 0) first.push_back(rank);
      EXPECT_EQ(rank, first[i]);
    }
  }
}

}  // namespace
}  // namespace moe
