// EngineLoop without a model, single-threaded: messages, limits, counters, faults, health.
#include "engine/core/engine_loop.h"

#include <algorithm>
#include <limits>

#include "gtest/gtest.h"
#include "tests/engine/core/loop_testing.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe {
namespace {

using toy::MakeRequest;
using toy::Recorder;
using toy::ToyRanks;
using toy::ToySpec;

// The loop with a clock that the steps move: 1 ms and 0.1 ms a row.
class LoopTest : public ::testing::Test {
 protected:
  LoopTest() {
    options_.scheduler.blocks_per_rank = 64;
    options_.scheduler.max_model_len = 256;
    options_.scheduler.max_num_batched_tokens = 128;
    options_.scheduler.prefill_chunk_tokens = 32;
  }
  void Make() {
    ranks_ = std::make_unique<ToyRanks>(options_.scheduler);
    ranks_->on_plan = [this](const StepPlan& plan) {
      now_ += 0.001;
      for (const RankPlan& rank : plan.ranks) {
        for (const SlicePlan& s : rank.slices) now_ += 0.0001 * static_cast<double>(s.count);
      }
    };
    loop_ = std::make_unique<EngineLoop>(spec_, options_, inbox_, *ranks_, [this] { return now_; });
  }
  std::shared_ptr<Recorder> Submit(Request request, uint64_t* handle = nullptr) {
    auto sink = std::make_shared<Recorder>();
    sink->now = &now_;
    StatusOr<uint64_t> h = loop_->Submit(std::move(request), sink);
    EXPECT_TRUE(h.ok()) << h.status();
    if (handle != nullptr && h.ok()) *handle = *h;
    return sink;
  }
  void RunAll() {
    for (int i = 0; i < 100000 && loop_->Unfinished() > 0; ++i) loop_->RunOnce();
    ASSERT_EQ(loop_->Unfinished(), 0);
    ASSERT_TRUE(ranks_->mistakes().empty()) << ranks_->mistakes()[0];
  }

  ModelSpec spec_ = ToySpec();
  EngineLoopOptions options_;
  double now_ = 1000;
  LoopInbox inbox_;
  std::unique_ptr<ToyRanks> ranks_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_F(LoopTest, LogitsThatAreNotFiniteEndTheirRequestAlone) {
  Make();
  Request several = MakeRequest(12, 20, 2);
  several.num_choices = 3;
  auto good = Submit(MakeRequest(10, 20, 1));
  auto bad = Submit(std::move(several));
  auto other = Submit(MakeRequest(10, 20, 3));
  int step = 0;
  ranks_->on_result = [&](StepResult& result) {
    if (++step != 3) return;
    for (SliceResult& slice : result.ranks[0].slices) slice.not_finite = slice.id == 3;  // the second of its choices
  };
  RunAll();
  EXPECT_EQ(bad->done, 1);
  EXPECT_EQ(bad->status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(bad->status.message()).find("logits are not finite"), std::string::npos) << bad->status;
  for (const auto& sink : {good, other}) {
    EXPECT_TRUE(sink->status.ok()) << sink->status;
    EXPECT_EQ(sink->tokens.size(), 20u);
  }
  EXPECT_EQ(loop_->Stats().kv_blocks_used, 0);
}

TEST_F(LoopTest, CancelWhileQueued) {
  options_.scheduler.max_num_seqs = 1;
  Make();
  auto running = Submit(MakeRequest(10, 200, 1));
  std::vector<uint64_t> handles(5);
  std::vector<std::shared_ptr<Recorder>> queued;
  for (int i = 0; i < 5; ++i) queued.push_back(Submit(MakeRequest(20, 3, 10 + i), &handles[i]));
  EXPECT_EQ(loop_->Stats().waiting, 6) << "also before the loop has looked";
  loop_->RunOnce();
  EXPECT_EQ(loop_->Stats().running, 1);
  EXPECT_EQ(loop_->Stats().waiting, 5);
  for (int i : {0, 2, 4}) loop_->Cancel(handles[i]);
  loop_->RunOnce();
  EXPECT_EQ(loop_->Stats().waiting, 2);
  for (int i : {0, 2, 4}) EXPECT_EQ(queued[i]->status.code(), absl::StatusCode::kCancelled);
  RunAll();
  EXPECT_EQ(running->tokens.size(), 200u);
  for (int i : {1, 3}) EXPECT_EQ(queued[i]->tokens.size(), 3u);
  EXPECT_LT(queued[1]->times[0], queued[3]->times[0]) << "in order";
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.prompt_tokens_computed, 10u + 2 * 20u);
  EXPECT_EQ(stats.requests_cancelled, 3u);
}

TEST_F(LoopTest, LongPromptsDoNotStallASmallRequest) {
  Make();
  auto small = Submit(MakeRequest(4, 16, 1));
  loop_->RunOnce();
  auto a = Submit(MakeRequest(255, 1, 2));
  auto b = Submit(MakeRequest(255, 1, 3));
  RunAll();
  EXPECT_EQ(a->tokens.size(), 1u);
  EXPECT_EQ(b->tokens.size(), 1u);
  ASSERT_EQ(small->times.size(), 16u);
  for (size_t i = 1; i < small->times.size(); ++i) {
    EXPECT_LE(small->times[i] - small->times[i - 1], 0.001 + 0.0001 * 33 + 1e-9) << "more than a chunk and a step";
  }
}

TEST_F(LoopTest, MaxNewTokensIsClampedToTheContext) {
  Make();
  auto sink = Submit(MakeRequest(6, int64_t{1} << 62));
  RunAll();
  EXPECT_EQ(sink->tokens.size(), 250u);
  EXPECT_EQ(sink->finish, FinishReason::kLength);
}

TEST_F(LoopTest, GaugesAfterAMassCancel) {
  Make();
  std::vector<uint64_t> handles(32);
  for (int i = 0; i < 32; ++i) Submit(MakeRequest(30, 100, i), &handles[i]);
  for (int i = 0; i < 20; ++i) loop_->RunOnce();
  EXPECT_GT(loop_->Stats().kv_blocks_used, 0);
  for (uint64_t h : handles) loop_->Cancel(h);
  EXPECT_TRUE(loop_->RunOnce());
  EXPECT_FALSE(loop_->RunOnce());
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.requests_cancelled, 32u);
  EXPECT_EQ(loop_->Unfinished(), 0);
}

TEST_F(LoopTest, StopNoticeDropsTokensOfTheStepThatRuns) {
  Make();
  uint64_t handle = 0;
  auto sink = Submit(MakeRequest(5, 50), &handle);
  for (int i = 0; i < 3; ++i) loop_->RunOnce();
  ASSERT_EQ(sink->tokens.size(), 3u);
  ranks_->during_step = [&] {
    loop_->StopChoice(handle, 0);
    return absl::OkStatus();
  };
  loop_->RunOnce();
  EXPECT_EQ(sink->tokens.size(), 3u);
  EXPECT_EQ(sink->finish, FinishReason::kStop);
  EXPECT_EQ(sink->done, 1);
  EXPECT_TRUE(sink->status.ok());
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.generated_tokens, 3u);
  EXPECT_EQ(stats.finish_stop, 1u);
}

TEST_F(LoopTest, EndIdsAndMinNewTokens) {
  Make();
  Request r = MakeRequest(5, 60, 9);
  const toy::Undisturbed free = toy::RunAlone(r, 0, 256);
  r.eos_token_ids = {free.tokens[3]};
  auto eos = Submit(r);
  r.eos_token_ids = {};
  r.stop_token_ids = {free.tokens[3]};
  auto stop = Submit(r);
  r.min_new_tokens = 60;
  auto minimum = Submit(r);
  RunAll();
  const auto first =
      static_cast<size_t>(std::find(free.tokens.begin(), free.tokens.end(), free.tokens[3]) - free.tokens.begin());
  EXPECT_EQ(eos->finish, FinishReason::kEos);
  EXPECT_EQ(eos->tokens.size(), first + 1) << "with the end token";
  EXPECT_EQ(stop->finish, FinishReason::kStop);
  EXPECT_EQ(stop->tokens.size(), first + 1);
  EXPECT_EQ(minimum->finish, FinishReason::kLength);
}

TEST_F(LoopTest, QueueLimitDrainAndAbort) {
  options_.max_queue = 2;
  options_.scheduler.max_num_seqs = 1;
  Make();
  auto a = Submit(MakeRequest(5, 100, 1));
  loop_->RunOnce();
  auto b = Submit(MakeRequest(5, 100, 2));
  auto c = Submit(MakeRequest(5, 100, 3));
  EXPECT_EQ(loop_->Submit(MakeRequest(5, 5), std::make_shared<Recorder>()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loop_->Stats().requests_rejected_queue_full, 1u);
  loop_->StopAccepting();
  EXPECT_EQ(loop_->Submit(MakeRequest(5, 5), std::make_shared<Recorder>()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop_->Unfinished(), 3);
  loop_->AbortAll();
  loop_->RunOnce();
  EXPECT_EQ(loop_->Unfinished(), 0);
  for (const auto& s : {a, b, c}) {
    EXPECT_EQ(s->done, 1);
    EXPECT_TRUE(s->status.ok());
    EXPECT_EQ(s->finish, FinishReason::kCancelled);
  }
  EXPECT_EQ(a->tokens.size(), 1u);
}

TEST_F(LoopTest, InvalidRequestsNeverEnter) {
  Make();
  Request r = MakeRequest(5, 5);
  r.sampling.top_p = 2;
  EXPECT_EQ(loop_->Submit(r, std::make_shared<Recorder>()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(loop_->Unfinished(), 0);
  EXPECT_FALSE(loop_->RunOnce());
}

TEST_F(LoopTest, FailedStepEndsEverythingOnce) {
  Make();
  auto a = Submit(MakeRequest(5, 50, 1));
  auto b = Submit(MakeRequest(5, 50, 2));
  loop_->RunOnce();
  loop_->RunOnce();
  std::shared_ptr<Recorder> late;
  ranks_->during_step = [&]() -> Status {
    late = Submit(MakeRequest(5, 50, 3));
    return absl::DeadlineExceededError("rank 1 did not answer in layer 3");
  };
  loop_->RunOnce();
  loop_->RunOnce();
  for (const auto& s : {a, b, late}) {
    EXPECT_EQ(s->done, 1);
    EXPECT_EQ(s->status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(s->status.message().find("rank 1 did not answer in layer 3"), std::string::npos);
  }
  EXPECT_EQ(a->tokens.size(), 2u) << "the failed step gave nothing";
  EXPECT_EQ(loop_->Health(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop_->Submit(MakeRequest(5, 5), std::make_shared<Recorder>()).status().code(),
            absl::StatusCode::kUnavailable);
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.requests_failed, 3u);
  EXPECT_EQ(stats.running + stats.waiting + stats.kv_blocks_used, 0);
  EXPECT_EQ(loop_->Unfinished(), 0);
}

// Answers nothing that fits the plan.
struct WrongRanks : RankLink {
  void Rebalance(const std::vector<std::vector<uint64_t>>&, int64_t, std::function<void(const Status&)>) override {}
  std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const override { return nullptr; }
  int num_ranks() const override { return 1; }
  StatusOr<StepResult> Step(const StepPlan& plan) override {
    StepResult result;
    result.step = plan.step;
    result.ranks.resize(1);
    result.ranks[0].slices.resize(plan.ranks[0].slices.size() + 1);
    return result;
  }
};

TEST_F(LoopTest, ResultsThatDoNotFitThePlanAreAFault) {
  WrongRanks wrong;
  EngineLoop loop(spec_, options_, inbox_, wrong, [this] { return now_; });
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(loop.Submit(MakeRequest(5, 5), sink).ok());
  loop.RunOnce();
  EXPECT_EQ(sink->done, 1);
  EXPECT_EQ(sink->status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(LoopTest, HealthSeesAStalledLoop) {
  Make();
  EXPECT_TRUE(loop_->Health(10).ok());
  now_ += 3600;  // idle is healthy
  EXPECT_TRUE(loop_->Health(10).ok());
  auto sink = Submit(MakeRequest(5, 5));
  now_ += 9;
  EXPECT_TRUE(loop_->Health(10).ok());
  now_ += 2;
  EXPECT_EQ(loop_->Health(10).code(), absl::StatusCode::kUnavailable);
  loop_->RunOnce();
  EXPECT_TRUE(loop_->Health(10).ok());
}

TEST_F(LoopTest, TimesAndHistograms) {
  options_.scheduler.max_num_seqs = 1;
  Make();
  auto a = Submit(MakeRequest(10, 4, 1));
  auto b = Submit(MakeRequest(10, 4, 2));
  RunAll();
  EXPECT_EQ(a->request_times.queue_seconds, 0);
  EXPECT_NEAR(a->request_times.time_to_first_token_seconds, 0.002, 1e-9);
  EXPECT_NEAR(a->request_times.total_seconds, 0.002 + 3 * 0.0011, 1e-9);
  EXPECT_NEAR(b->request_times.queue_seconds, a->request_times.total_seconds, 1e-9);
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.inter_token_seconds.count(), 6u);
  EXPECT_EQ(stats.inter_token_seconds.counts()[1], 6u) << "1.1 ms is in the bucket up to 2.5 ms";
  EXPECT_EQ(stats.time_to_first_token_seconds.count(), 2u);
  EXPECT_EQ(stats.prompt_tokens.count(), 2u);
  EXPECT_EQ(stats.generated_tokens_per_request.sum(), 8);
  EXPECT_EQ(stats.steps, 8u);
  EXPECT_EQ(stats.step_tokens.sum(), 26);
  ASSERT_EQ(stats.moe_layers.size(), 2u);
  EXPECT_EQ(stats.moe_layers[1].layer, 1);
  EXPECT_EQ(stats.moe_layers[1].tokens_per_expert[5], 8u);
  EXPECT_EQ(stats.rank_expert_tokens[0], 8u * toy::kLayers * toy::kExperts);
  EXPECT_GT(stats.generated_tokens_per_second, 0.7);
  now_ += 11;
  EXPECT_EQ(loop_->Stats().generated_tokens_per_second, 0);
}

TEST_F(LoopTest, NegativeCountsAreClamped) {
  Make();
  LoopStats stats(spec_, 1);
  StepResult result;
  result.ranks.resize(1);
  result.ranks[0].expert_tokens.assign(toy::kLayers * toy::kExperts, 5);
  stats.AddStep({}, result);
  result.ranks[0].expert_tokens.assign(toy::kLayers * toy::kExperts, -3);
  stats.AddStep({}, result);
  stats.AddStep({}, result);
  EXPECT_EQ(stats.Copy(0).moe_layers[0].tokens_per_expert[0], 5u);
}

}  // namespace
}  // namespace moe
