// Random schedules, single-threaded and repeatable from a seed: every request's output must be what it is alone,
// whatever arrives, is cancelled, preempted, shared or stopped around it.
//   MOE_SIM_SEEDS=100000 MOE_SIM_FIRST=1 engine_loop_test --gtest_filter='Simulation.*'
#include <cstdlib>

#include "engine/core/engine_loop.h"
#include "gtest/gtest.h"
#include "tests/engine/core/loop_testing.h"
#include "tests/engine/core/simulated_clients.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe {
namespace {

using toy::ToyRanks;
using toy::ToySpec;

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : dice_(seed), spec_(ToySpec()) {
    options_.scheduler = toy::DrawSchedulerOptions(dice_, dice_.Coin(0.3) ? static_cast<int>(dice_.Between(2, 3)) : 1);
    options_.max_queue = dice_.Coin(0.1) ? 3 : 1000;
    ranks_ = std::make_unique<ToyRanks>(options_.scheduler);
    loop_ = std::make_unique<EngineLoop>(spec_, options_, inbox_, *ranks_, [this] { return now_; });
    clients_ = std::make_unique<toy::SimulatedClients>(&dice_, loop_.get());
    ranks_->during_step = [this] {
      now_ += 0.001 * static_cast<double>(dice_.Between(1, 20));
      if (dice_.Coin(0.15)) clients_->Disturb();
      return absl::OkStatus();
    };
  }

  void Run() {
    const int64_t arrivals = dice_.Between(1, 40);
    int64_t idle = 0;
    while (clients_->size() < arrivals || loop_->Unfinished() > 0) {
      now_ += 0.0001;
      if (clients_->size() < arrivals) {
        for (int64_t i = dice_.Coin(0.3) ? dice_.Between(1, 6) : 0; i > 0; --i) clients_->Arrive();
      }
      if (dice_.Coin(0.1)) clients_->Disturb();
      const bool did = loop_->RunOnce();
      CheckState();
      idle = did ? 0 : idle + 1;
      ASSERT_LT(idle, 1000) << "nothing happens";
      ASSERT_LT(ranks_->steps(), 200000) << "no end in sight";
      if (HasFailure()) return;
    }
    CheckEnd();
  }

  bool HasFailure() const { return ::testing::Test::HasFailure(); }
  uint64_t preemptions() const { return loop_->scheduler().preemptions(); }
  uint64_t prefix_hits() const { return loop_->scheduler().prefix_hits(); }
  int64_t steps() const { return ranks_->steps(); }
  int64_t guesses() const { return ranks_->guesses(); }
  int64_t accepted() const { return ranks_->accepted(); }

 private:
  void CheckState() {
    ASSERT_TRUE(ranks_->mistakes().empty()) << ranks_->mistakes()[0];
    toy::CheckBooks(loop_->scheduler());
    const EngineStats now = loop_->Stats();
    const auto counters = [](const EngineStats& s) {
      return std::vector<uint64_t>{s.requests_ok,
                                   s.requests_cancelled,
                                   s.requests_failed,
                                   s.requests_rejected_queue_full,
                                   s.finish_eos,
                                   s.finish_stop,
                                   s.finish_length,
                                   s.finish_cancelled,
                                   s.prompt_tokens_computed,
                                   s.prompt_tokens_cached,
                                   s.generated_tokens,
                                   s.preemptions,
                                   s.steps,
                                   s.prefix_queries,
                                   s.prefix_hits,
                                   s.guesses_proposed,
                                   s.guesses_accepted,
                                   s.queue_seconds.count(),
                                   s.inter_token_seconds.count(),
                                   s.step_seconds.count()};
    };
    const std::vector<uint64_t> before = counters(last_), after = counters(now);
    for (size_t i = 0; i < before.size(); ++i) ASSERT_LE(before[i], after[i]) << "counter " << i;
    ASSERT_LE(now.prefix_hits, now.prefix_queries);
    ASSERT_LE(now.guesses_accepted, now.guesses_proposed);
    ASSERT_LE(now.guesses_proposed, static_cast<uint64_t>(ranks_->guesses()));
    last_ = now;
  }

  void CheckEnd() {
    const EngineStats stats = loop_->Stats();
    int64_t flushed = -1;
    loop_->FlushPrefixCache([&](int64_t n) { flushed = n; });
    loop_->RunOnce();
    EXPECT_EQ(flushed, stats.kv_blocks_cached);
    EXPECT_EQ(loop_->Stats().kv_blocks_cached, 0);
    clients_->Check(false);
    clients_->CheckStats(stats);
    EXPECT_EQ(stats.requests_failed, 0u);
  }

  toy::Dice dice_;
  ModelSpec spec_;
  EngineLoopOptions options_;
  double now_ = 100;
  LoopInbox inbox_;
  std::unique_ptr<ToyRanks> ranks_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<toy::SimulatedClients> clients_;
  EngineStats last_;
};

int64_t FromEnv(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoll(text);
}

TEST(Simulation, RandomSchedulesGiveTheUndisturbedTokens) {
  const int64_t seeds = FromEnv("MOE_SIM_SEEDS", 3000);
  const int64_t first = FromEnv("MOE_SIM_FIRST", 1);
  uint64_t preemptions = 0, hits = 0;
  int64_t steps = 0, guesses = 0, accepted = 0;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    Simulation sim(static_cast<uint64_t>(seed));
    sim.Run();
    ASSERT_FALSE(HasFailure()) << "replay with MOE_SIM_FIRST=" << seed << " MOE_SIM_SEEDS=1";
    preemptions += sim.preemptions();
    hits += sim.prefix_hits();
    steps += sim.steps();
    guesses += sim.guesses();
    accepted += sim.accepted();
  }
  std::printf("%lld seeds, %lld steps, %llu preemptions, %llu cached blocks used, %lld of %lld guesses accepted\n",
              static_cast<long long>(seeds), static_cast<long long>(steps),
              static_cast<unsigned long long>(preemptions), static_cast<unsigned long long>(hits),
              static_cast<long long>(accepted), static_cast<long long>(guesses));
  if (seeds >= 1000) {
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(guesses - accepted, 1000);
    EXPECT_GT(preemptions, 1000u);
    EXPECT_GT(hits, 1000u);
  }
}

}  // namespace
}  // namespace moe
