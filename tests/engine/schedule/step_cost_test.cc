#include "engine/schedule/step_cost.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

// One layer: attention of 4 heads, `experts` of which `chosen` take part.
ModelSpec Spec(int64_t experts, int64_t chosen) {
  ModelSpec spec;
  spec.vocab_size = 100;
  spec.hidden_size = 64;
  spec.layers.resize(1);
  AttentionSpec attention;
  attention.num_heads = attention.num_kv_heads = 4;
  attention.head_dim = attention.v_head_dim = 16;
  spec.layers[0].mixer = attention;
  MoeSpec moe;
  moe.num_experts = experts;
  moe.top_k = chosen;
  moe.expert.intermediate_size = 256;
  spec.layers[0].ffn = moe;
  return spec;
}

TEST(StepCost, WithoutAModelRowsAreFree) {
  EXPECT_EQ(StepCost()(1), 1);
  EXPECT_EQ(StepCost()(5000), 1);
}

TEST(StepCost, GrowsWithTheExpertsThatRowsRead) {
  const StepCost sparse(Spec(64, 2));
  const StepCost dense(Spec(4, 4));  // every row reads all
  EXPECT_DOUBLE_EQ(sparse(1), 1);
  EXPECT_DOUBLE_EQ(dense(1), 1);
  // Nearly all weights are the experts', and two rows hardly share one.
  EXPECT_GT(sparse(2), 1.75);
  EXPECT_LT(dense(2), 1.1);
  for (int64_t n = 1; n < 2000; ++n) {
    ASSERT_GT(sparse(n + 1), sparse(n)) << n;
    ASSERT_LE(sparse(n + 1) - sparse(n), sparse(2) - sparse(1) + 1e-9) << n;
  }
  // With all experts read, only the arithmetic of a row is left.
  EXPECT_NEAR(sparse(1000) - sparse(999), dense(1000) - dense(999), 1e-6);
  EXPECT_NEAR(sparse(5000) - sparse(4000), 1000 * (dense(1000) - dense(999)), 1e-6);
}

}  // namespace
}  // namespace moe
