// Route of every path against the scalar router, over all variants of RouterSpec.
#include <cmath>
#include <limits>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

struct RouteInputs {
  RouterSpec spec;
  int64_t rows = 0, experts = 0, top_k = 0;
  std::vector<float> logits, logit_bias, select_bias;
};

Routed RunRoute(Backend& backend, const RouteInputs& in) {
  Routed r{std::vector<int32_t>(in.rows * in.top_k), std::vector<float>(in.rows * in.top_k)};
  RouteOp op;
  op.spec = &in.spec;
  op.num_experts = in.experts;
  op.top_k = in.top_k;
  op.logits = in.logits.data();
  op.logit_bias = in.spec.logit_bias ? in.logit_bias.data() : nullptr;
  op.select_bias = in.spec.select_bias ? in.select_bias.data() : nullptr;
  op.rows = in.rows;
  op.ids = r.ids.data();
  op.weights = r.weights.data();
  backend.Route(op);
  return r;
}

// Logits on a grid of 1/16: two that differ do so by far more than the rounding of a softmax (E · 8 u), equal ones are
// exactly equal in both backends, so the choice is decided.
std::vector<float> Grid(Random& random, int64_t n, float step) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(random.Int(64) - 32) * step;
  return x;
}

std::vector<RouterSpec> Specs() {
  std::vector<RouterSpec> specs;
  for (auto score : {RouterSpec::Score::kSoftmax, RouterSpec::Score::kSigmoid}) {
    for (auto normalize :
         {RouterSpec::Normalize::kNone, RouterSpec::Normalize::kSum, RouterSpec::Normalize::kSoftmaxOverChosen}) {
      if (score == RouterSpec::Score::kSigmoid && normalize == RouterSpec::Normalize::kSoftmaxOverChosen) continue;
      for (bool logit_bias : {false, true}) {
        RouterSpec s;
        s.score = score;
        s.normalize = normalize;
        s.logit_bias = logit_bias;
        s.normalize_eps = 1e-20f;
        specs.push_back(s);
      }
    }
  }
  for (auto group_score : {RouterSpec::GroupScore::kSumOfTopTwo, RouterSpec::GroupScore::kMax}) {
    for (bool select_bias : {false, true}) {
      RouterSpec s;
      s.score = RouterSpec::Score::kSigmoid;
      s.select_bias = select_bias;
      s.normalize = RouterSpec::Normalize::kSum;
      s.num_groups = 4;
      s.top_groups = 2;
      s.group_score = group_score;
      specs.push_back(s);
      s.others_score_zero = true;
      specs.push_back(s);
    }
  }
  for (auto score : {RouterSpec::Score::kSoftmax, RouterSpec::Score::kSigmoid}) {
    RouterSpec s;
    s.score = score;
    s.normalize = RouterSpec::Normalize::kSum;
    s.normalize_min = 1e-3f;
    s.select_bias = s.select_by_logit = true;
    specs.push_back(s);
    s.select_by_logit = false;
    s.logit_cap = 1.5f;
    s.input_scale = 0.375f;
    specs.push_back(s);
  }
  for (const float order : {0.5f, 2.0f, std::numeric_limits<float>::infinity()}) {
    RouterSpec s;
    s.normalize = RouterSpec::Normalize::kSum;
    s.normalize_order = order;
    specs.push_back(s);
  }
  RouterSpec few;
  few.num_groups = 4;
  few.top_groups = 1;
  few.group_score = RouterSpec::GroupScore::kMax;
  few.others_weigh_zero = true;
  specs.push_back(few);
  return specs;
}

TEST(Route, MatchesTheScalarRouter) {
  WorkerPool pool(2);
  auto reference = CreateReferenceBackend(DType::kF32);
  for (CpuIsa isa : AvailableIsas()) {
    auto cpu = MakeCpu(isa, DType::kF32, &pool);
    for (const RouterSpec& spec : Specs()) {
      for (int64_t experts : {8, 20, 128}) {
        Random random(static_cast<uint32_t>(31 + experts));
        RouteInputs in;
        in.spec = spec;
        in.rows = 50;
        in.experts = experts;
        in.top_k = 4;
        in.logits = Grid(random, in.rows * experts, 1.0f / 16);
        in.logit_bias = Grid(random, experts, 1.0f / 16);
        // Off the grid of the scores, so that sums of score and bias are not nearly equal.
        in.select_bias = Grid(random, experts, 0.25f);
        const Routed got = RunRoute(*cpu, in);
        const Routed want = RunRoute(*reference, in);
        EXPECT_EQ(got.ids, want.ids) << CpuIsaName(isa) << " experts " << experts;
        // A probability or sigmoid: exp, a sum of E, a division; then a sum of k and a division. Each below 1.
        std::vector<double> bound;
        for (float w : want.weights) {
          bound.push_back(2 * static_cast<double>(experts + in.top_k + 16) * kU * std::fabs(w));
        }
        ExpectNear(CpuIsaName(isa), got.weights, want.weights, bound, in.top_k);
      }
    }
  }
}

TEST(Route, EqualScoresGoToTheLowestIds) {
  WorkerPool pool(2);
  for (CpuIsa isa : AvailableIsas()) {
    auto cpu = MakeCpu(isa, DType::kF32, &pool);
    for (const RouterSpec& spec : Specs()) {
      RouteInputs in;
      in.spec = spec;
      in.spec.logit_bias = in.spec.select_bias = false;
      in.rows = 2;
      in.experts = 16;
      in.top_k = 4;
      in.logits.assign(32, 0.25f);
      in.logits[16 + 5] = 1.0f;
      const Routed got = RunRoute(*cpu, in);
      EXPECT_EQ(std::vector<int32_t>(got.ids.begin(), got.ids.begin() + 4), (std::vector<int32_t>{0, 1, 2, 3}));
      EXPECT_EQ(got.ids[4], 5);
    }
  }
}

TEST(Route, ExpertsBeyondTheChosenGroupsWeighNothing) {
  for (const char* backend : {"reference", "cpu"}) {
    WorkerPool pool(1);
    const std::unique_ptr<Backend> route =
        backend[0] == 'r' ? CreateReferenceBackend(DType::kF32) : MakeCpu(AvailableIsas().back(), DType::kF32, &pool);
    RouteInputs in;
    in.spec.num_groups = 4;
    in.spec.top_groups = 1;
    in.spec.group_score = RouterSpec::GroupScore::kMax;
    in.spec.others_weigh_zero = true;
    in.rows = 1;
    in.experts = 8;
    in.top_k = 3;
    in.logits = {0, 0, 0, 0, 1, 2, 0, 0};
    const Routed got = RunRoute(*route, in);
    EXPECT_EQ(got.ids, (std::vector<int32_t>{5, 4, 0})) << backend;
    EXPECT_GT(got.weights[1], 0) << backend;
    EXPECT_EQ(got.weights[2], 0) << backend;
  }
}

TEST(Route, BrokenRowsStillChooseDifferentExperts) {
  WorkerPool pool(2);
  const float nan = std::nanf("");
  const float inf = std::numeric_limits<float>::infinity();
  for (CpuIsa isa : AvailableIsas()) {
    auto cpu = MakeCpu(isa, DType::kF32, &pool);
    for (const RouterSpec& spec : Specs()) {
      for (float bad : {nan, inf, -inf}) {
        for (bool all : {false, true}) {
          RouteInputs in;
          in.spec = spec;
          in.spec.logit_bias = in.spec.select_bias = false;
          in.rows = 1;
          in.experts = 20;
          in.top_k = 4;
          in.logits.assign(20, all ? bad : 0.5f);
          in.logits[3] = bad;
          const Routed got = RunRoute(*cpu, in);
          for (int i = 0; i < 4; ++i) {
            EXPECT_GE(got.ids[i], 0);
            EXPECT_LT(got.ids[i], 20);
            for (int j = 0; j < i; ++j) EXPECT_NE(got.ids[i], got.ids[j]);
          }
        }
      }
    }
  }
}

TEST(Route, ARowAloneHasTheBitsItHasInABatchWithAnyThreads) {
  Random random(33);
  for (CpuIsa isa : AvailableIsas()) {
    RouteInputs in;
    in.rows = 300;
    in.experts = 60;
    in.top_k = 6;
    in.logits = random.Floats(in.rows * in.experts);
    Routed want;
    for (int threads : {1, 2, 3}) {
      WorkerPool pool(threads);
      auto cpu = MakeCpu(isa, DType::kBF16, &pool);
      const Routed got = RunRoute(*cpu, in);
      if (threads == 1) want = got;
      EXPECT_EQ(got.ids, want.ids);
      ExpectSameBits(CpuIsaName(isa), got.weights, want.weights, in.top_k);
      for (int64_t r : {0, 150, 299}) {
        RouteInputs one = in;
        one.rows = 1;
        one.logits.assign(in.logits.begin() + r * in.experts, in.logits.begin() + (r + 1) * in.experts);
        const Routed alone = RunRoute(*cpu, one);
        ExpectSameBits(CpuIsaName(isa), alone.weights,
                       {want.weights.begin() + r * in.top_k, want.weights.begin() + (r + 1) * in.top_k}, in.top_k);
      }
    }
  }
}

}  // namespace
}  // namespace moe::device_test
