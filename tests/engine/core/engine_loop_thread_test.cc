// EngineLoop on its own thread, and what a step costs it.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <random>
#include <thread>

#include "engine/core/engine_loop.h"
#include "gtest/gtest.h"
#include "tests/engine/core/loop_testing.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe {
namespace {

using toy::MakeRequest;
using toy::Recorder;
using toy::ToyRanks;
using toy::ToySpec;

SchedulerOptions ThreadOptions() {
  SchedulerOptions o;
  o.blocks_per_rank = 40;
  o.max_model_len = 256;
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 64;
  return o;
}

TEST(LoopThread, ManyClientsGetTheirTokens) {
  const ModelSpec spec = ToySpec();
  EngineLoopOptions options;
  options.scheduler = ThreadOptions();
  LoopInbox inbox;
  ToyRanks ranks(options.scheduler);
  EngineLoop loop(spec, options, inbox, ranks, EngineLoop::SteadyClock());
  loop.Start();
  std::atomic<bool> watching{true};
  std::thread watcher([&] {
    while (watching) {
      const EngineStats stats = loop.Stats();
      EXPECT_GE(stats.running, 0);
      EXPECT_TRUE(loop.Health(60).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::thread> threads;
  std::atomic<int> right{0}, cancelled{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 gen(t);
      for (int i = 0; i < 40; ++i) {
        const Request request = MakeRequest(1 + gen() % 60, 1 + gen() % 40, 1000 * t + i);
        auto sink = std::make_shared<Recorder>();
        const StatusOr<uint64_t> handle = loop.Submit(request, sink);
        ASSERT_TRUE(handle.ok());
        if (i % 5 == 4) loop.Cancel(*handle);
        if (i % 7 == 6) loop.FlushPrefixCache();
        sink->finished.get_future().wait();
        std::lock_guard lock(sink->mutex);
        if (sink->status.ok()) {
          EXPECT_EQ(sink->tokens, toy::RunAlone(request, 0, 256).tokens);
          ++right;
        } else {
          ++cancelled;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  watching = false;
  watcher.join();
  EXPECT_EQ(right + cancelled, 160);
  EXPECT_GE(right, 128);
  loop.Stop();
  EXPECT_TRUE(ranks.mistakes().empty());
}

TEST(LoopThread, SinksMayCallBackAndStopEndsWhatIsLeft) {
  const ModelSpec spec = ToySpec();
  EngineLoopOptions options;
  options.scheduler = ThreadOptions();
  LoopInbox inbox;
  ToyRanks ranks(options.scheduler);
  ranks.during_step = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return absl::OkStatus();
  };
  auto loop = std::make_unique<EngineLoop>(spec, options, inbox, ranks, EngineLoop::SteadyClock());
  loop->Start();
  auto self_cancelling = std::make_shared<Recorder>();
  std::atomic<uint64_t> handle{0};
  self_cancelling->on_output = [&] {
    loop->Cancel(handle);
    loop->Stats();
    loop->Unfinished();
  };
  handle = *loop->Submit(MakeRequest(10, 240), self_cancelling);
  auto left = std::make_shared<Recorder>();
  ASSERT_TRUE(loop->Submit(MakeRequest(10, 240, 2), left).ok());
  self_cancelling->finished.get_future().wait();
  EXPECT_EQ(self_cancelling->status.code(), absl::StatusCode::kCancelled);
  loop->Stop();
  EXPECT_EQ(left->done, 1);
  EXPECT_EQ(left->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(loop->Submit(MakeRequest(10, 1), left).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop->FlushPrefixCache(), 0);
}

TEST(LoopThread, StatsNeverWaitForAStepAndIdleSleeps) {
  const ModelSpec spec = ToySpec();
  EngineLoopOptions options;
  options.scheduler = ThreadOptions();
  LoopInbox inbox;
  ToyRanks ranks(options.scheduler);
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::promise<void> entered;
  bool first = true;
  ranks.during_step = [&] {
    if (std::exchange(first, false)) entered.set_value();
    released.wait();
    return absl::OkStatus();
  };
  EngineLoop loop(spec, options, inbox, ranks, EngineLoop::SteadyClock());
  loop.Start();
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(loop.Submit(MakeRequest(10, 3), sink).ok());
  entered.get_future().wait();
  EXPECT_EQ(loop.Stats().running, 1);
  EXPECT_TRUE(loop.Health(60).ok());
  EXPECT_FALSE(loop.Health(0).ok());
  release.set_value();
  sink->finished.get_future().wait();
  // The loop is idle from here: the process uses (nearly) no processor time.
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.02);
}

// --- Cost ---

// Answers at once, to measure what the loop itself takes.
struct InstantRanks : RankLink {
  void Rebalance(const std::vector<std::vector<uint64_t>>&, int64_t, std::function<void(const Status&)>) override {}
  std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const override { return nullptr; }
  double inside = 0;
  std::vector<int64_t> expert_tokens;
  int num_ranks() const override { return 1; }
  StatusOr<StepResult> Step(const StepPlan& plan) override {
    const auto start = std::chrono::steady_clock::now();
    StepResult result;
    result.step = plan.step;
    result.ranks.resize(1);
    result.ranks[0].expert_tokens = expert_tokens;
    for (const SlicePlan& s : plan.ranks[0].slices) {
      SliceResult& out = result.ranks[0].slices.emplace_back();
      out.id = s.id;
      if (s.sample) out.tokens.emplace_back().id = static_cast<int32_t>(plan.step % 1000);
    }
    inside += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
};

struct CountingSink : ResponseSink {
  int64_t tokens = 0;
  void OnOutput(OutputChunk chunk) override { tokens += static_cast<int64_t>(chunk.tokens.size()); }
  void OnDone(const Status&, const RequestTimes&) override {}
};

TEST(LoopCost, StepWith256Sequences) {
  ModelSpec spec;  // of the size of a large model
  spec.vocab_size = 1000;
  spec.layers.resize(48);
  for (LayerSpec& layer : spec.layers) {
    MoeSpec moe;
    moe.num_experts = 128;
    moe.top_k = 8;
    layer.ffn = moe;
  }
  EngineLoopOptions options;
  options.scheduler.blocks_per_rank = 40000;
  options.scheduler.max_model_len = 4096;
  options.scheduler.max_num_seqs = 256;
  options.scheduler.max_num_batched_tokens = 2048;
  LoopInbox inbox;
  InstantRanks ranks;
  ranks.expert_tokens.assign(48 * 128, 16);
  EngineLoop loop(spec, options, inbox, ranks, EngineLoop::SteadyClock());
  auto sink = std::make_shared<CountingSink>();
  for (int i = 0; i < 256; ++i) {
    Request r;
    r.prompt.assign(100, i);
    r.max_new_tokens = 3000;
    r.eos_token_ids = {2000000};
    ASSERT_TRUE(loop.Submit(std::move(r), sink).ok());
  }
  for (int i = 0; i < 60; ++i) loop.RunOnce();  // prompts
  ASSERT_EQ(loop.Stats().running, 256);
  std::vector<double> micros;
  for (int i = 0; i < 1000; ++i) {
    ranks.inside = 0;
    const auto start = std::chrono::steady_clock::now();
    loop.RunOnce();
    micros.push_back(1e6 *
                     (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() - ranks.inside));
  }
  std::sort(micros.begin(), micros.end());
  std::printf("engine loop without the ranks, 256 sequences: median %.1f us, p99 %.1f us a step\n", micros[500],
              micros[990]);
  EXPECT_LT(micros[500], 5000) << "far from the goal of 100 us, also for a debug build";
}

}  // namespace
}  // namespace moe
