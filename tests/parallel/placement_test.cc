#include "parallel/placement.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moe {
namespace {

TEST(ExpertPlacement, LinearSharesTheRemainderOut) {
  const ExpertPlacement p = ExpertPlacement::Linear(10, 4);
  EXPECT_EQ(p.ExpertsOf(0), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(p.ExpertsOf(1), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(p.ExpertsOf(2), (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(p.ExpertsOf(3), (std::vector<int32_t>{8, 9}));
}

TEST(ExpertPlacement, MoreRanksThanExperts) {
  const ExpertPlacement p = ExpertPlacement::Linear(2, 3);
  EXPECT_EQ(p.ExpertsOf(2), std::vector<int32_t>{});
  EXPECT_EQ(p.RanksOf(1)[0], 1);
}

TEST(ExpertPlacement, RoundRobin) {
  const ExpertPlacement p = ExpertPlacement::RoundRobin(5, 2);
  EXPECT_EQ(p.ExpertsOf(0), (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(p.RanksOf(3)[0], 1);
}

TEST(ExpertPlacement, SharesAreEvenUnlessGiven) {
  const auto even = ExpertPlacement::FromMap({{0, 2}, {1}}, 4);
  ASSERT_TRUE(even.ok());
  EXPECT_EQ(even->SharesOf(0)[1], 0.5f);
  EXPECT_EQ(even->SharesOf(1)[0], 1.0f);
  const auto given = ExpertPlacement::FromShares({{0, 2}, {1}}, {{0.75f, 0.25f}, {1}}, 4);
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->SharesOf(0)[0], 0.75f);
  EXPECT_EQ(given->RanksOf(0)[1], 2);
}

TEST(ExpertPlacement, BadSharesAreRefused) {
  EXPECT_FALSE(ExpertPlacement::FromShares({{0, 1}}, {{0.5f, 0.4f}}, 2).ok());
  EXPECT_FALSE(ExpertPlacement::FromShares({{0, 1}}, {{1.5f, -0.5f}}, 2).ok());
  EXPECT_FALSE(ExpertPlacement::FromShares({{0, 1}}, {{1}}, 2).ok());
  EXPECT_FALSE(ExpertPlacement::FromShares({{0, 1}}, {}, 2).ok());
  EXPECT_FALSE(ExpertPlacement::FromShares({{0}}, {{std::nanf("")}}, 2).ok());
  EXPECT_FALSE(ExpertPlacement::FromShares({{0, 0}}, {{0.5f, 0.5f}}, 2).ok());
}

TEST(ExpertPlacement, BadMapsAreRefused) {
  EXPECT_EQ(ExpertPlacement::FromMap({{}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{0, 0}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{2}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{-1}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moe
