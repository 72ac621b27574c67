#include "parallel/placement.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(p.Target(1, 2), 1);
}

TEST(ExpertPlacement, RoundRobin) {
  const ExpertPlacement p = ExpertPlacement::RoundRobin(5, 2);
  EXPECT_EQ(p.ExpertsOf(0), (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(p.Target(3, 0), 1);
}

TEST(ExpertPlacement, ReplicasPreferTheSenderAndSpreadTheRest) {
  const auto p = ExpertPlacement::FromMap({{0, 2}, {1}}, 4);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->Target(0, 2), 2);
  EXPECT_EQ(p->Target(0, 1), 2);
  EXPECT_EQ(p->Target(0, 3), 2);
  EXPECT_EQ(p->Target(0, 0), 0);
}

TEST(ExpertPlacement, BadMapsAreRefused) {
  EXPECT_EQ(ExpertPlacement::FromMap({{}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{0, 0}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{2}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpertPlacement::FromMap({{-1}}, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moe
