// Scheduler, engine loop and ClusterLink against rank processes that die, stall, lose each other and come back: one
// thread, virtual time, everything from a seed. Every request's output must be what it is alone.
//   MOE_SIM_SEEDS=100000 MOE_SIM_FIRST=1 engine_loop_test --gtest_filter='ClusterSimulation.*'
// A seed that fails is run again with a trace of what happened.
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/cluster_link.h"
#include "engine/core/engine_loop.h"
#include "gtest/gtest.h"
#include "parallel/base/log.h"
#include "tests/engine/core/loop_testing.h"
#include "tests/engine/core/simulated_clients.h"
#include "tests/engine/core/simulated_cluster.h"
#include "tests/engine/core/simulated_world.h"

namespace moe {
namespace {

using toy::ClusterConditions;
using toy::Dice;

constexpr int64_t kAllExperts = toy::kLayers * toy::kExperts;
constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kLimit = 1000;  // seconds of a whole simulation

ClusterConditions DrawConditions(Dice& dice) {
  ClusterConditions c;
  c.terms = {.build = "moe 1", .checkpoint = "sha256:right", .backend = "cpu-toy", .dtype = "bf16"};
  c.seats = static_cast<int>(dice.Coin(0.1) ? 1 : dice.Between(2, 4));
  c.scheduler = toy::DrawSchedulerOptions(dice, c.seats);
  const int64_t part = toy::kLayers * ((toy::kExperts + c.seats - 1) / c.seats);
  c.capacity = dice.Coin(0.6) ? kAllExperts : std::min(kAllExperts, part + dice.Between(0, 4));
  c.step_parts = dice.Between(1, 3);
  c.latency = dice.Coin(0.8) ? 0.0003 : 0.01;
  c.compute = dice.Real(0.001, 0.02);
  c.load = dice.Real(0.01, 1);
  c.load_expert = dice.Real(0.001, 0.1);
  c.connect = dice.Real(0.001, 0.1);
  c.heartbeat_timeout = dice.Real(0.2, 1.5);
  c.exchange_timeout = dice.Real(0.5, 2);
  c.meet_timeout = dice.Real(0.5, 4);
  c.restart = dice.Real(0.01, 1.5);
  c.restarts = dice.Coin(0.7) ? 1 : dice.Real(0, 1);
  c.calm = dice.Real(1, 8);
  c.moment = dice.Coin(0.2) ? 0 : dice.Real(0.001, 0.03);
  c.mean_between_faults = dice.Real(0.05, 1);
  c.faults = dice.Coin(0.1) ? 0 : dice.Between(1, 10);
  c.strangers = dice.Coin(0.3) ? 0.5 : 0;
  c.stale = dice.Coin(0.5) ? 0.03 : 0;
  c.killed_for_good = dice.Coin(0.1);
  return c;
}

struct Totals {
  int64_t steps = 0, faults = 0;
  uint64_t recoveries = 0, undone = 0, replays = 0, rebalances = 0, stale = 0;
  int64_t unavailable = 0, given_up = 0, full_again = 0, requests = 0;
};

class ClusterSimulation {
 public:
  ClusterSimulation(uint64_t seed, bool traced) : world_(seed, kLimit, traced), spec_(toy::ToySpec()) {
    Dice& dice = world_.dice;
    conditions_ = DrawConditions(dice);
    early_ = dice.Coin(0.3);
    if (early_) conditions_.killed_for_good = false;  // AwaitRanks waits for all
    const SchedulerOptions& scheduler = conditions_.scheduler;
    ClusterOptions options;
    options.terms = conditions_.terms;
    options.num_slots = conditions_.seats;
    // Recurrent state, tails of blocks and the like cannot be taken back.
    options.sequences_survive =
        scheduler.state_slots_per_rank == 0 && !scheduler.speculation.rolls_back && dice.Coin(0.9);
    options.answer_timeout = dice.Real(0.3, 2);
    options.form_timeout = dice.Real(2, 6);
    options.prepare_timeout = dice.Real(4, 60);
    patient_ = dice.Coin(0.7);
    options.recovery_timeout = patient_ ? 60 : dice.Real(0.3, 5);
    options.on_event = [this] { woken_ = true; };
    cluster_ = std::make_unique<toy::SimulatedCluster>(&world_, conditions_);
    cluster_->on_wait = [this] { CheckHealth(); };
    link_ = std::make_unique<ClusterLink>(spec_, options, cluster_.get());
    arrivals_ = dice.Between(1, 30);
    arrivals_gap_ = conditions_.calm / static_cast<double>(arrivals_);
    world_.Trace(conditions_.seats, " seats, capacity ", conditions_.capacity, ", patient ", patient_, ", calm from ",
                 conditions_.calm, ", survive ", options.sequences_survive, ", recovery ", options.recovery_timeout);
  }

  void Run(Totals* totals) {
    try {
      if (early_) cluster_->Begin();
      Start();
      if (loop_ != nullptr) Serve();
      if (HasFailure()) return;
      End(totals);
    } catch (const toy::Stuck& stuck) {
      ADD_FAILURE() << stuck.what() << " at " << world_.now() << " s: " << (loop_ ? loop_->Unfinished() : -1)
                    << " requests are unfinished, " << (clients_ ? clients_->size() : 0) << " of " << arrivals_
                    << " have come";
      // They are inside a call that did not end.
      (void)clients_.release();
      (void)loop_.release();
      (void)link_.release();
      (void)cluster_.release();
    }
  }

  bool HasFailure() const { return Failures() > failures_before_; }

 private:
  static int Failures() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  void Start() {
    const StatusOr<ClusterLink::Memory> memory = link_->AwaitRanks([](const std::string&, double) {});
    if (early_ && absl::IsUnavailable(memory.status())) return;  // one after the other was lost
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_EQ(memory->weight_bytes, 100 * conditions_.seats);
    started_ = true;
    const Status begun = link_->Begin({.kv_blocks = 1, .state_slots = 0, .state_snapshots = 0, .rollback_slots = 0});
    if (!begun.ok()) {
      CheckGivenUp(begun);
      given_up_ = true;
      return;
    }
    EngineLoopOptions options;
    options.scheduler = conditions_.scheduler;
    options.max_queue = world_.dice.Coin(0.1) ? 3 : 1000;
    if (world_.dice.Coin(0.2)) options.rebalance_interval = world_.dice.Real(0.1, 1);
    options.redundant_experts = world_.dice.Between(0, conditions_.seats > 1 ? 4 : 0);
    loop_ = std::make_unique<EngineLoop>(spec_, options, inbox_, *link_, [this] { return world_.now(); });
    clients_ = std::make_unique<toy::SimulatedClients>(&world_.dice, loop_.get());
    if (!early_) cluster_->Begin();
    Arrivals();
    Disturbances();
    Rebalancings();
  }

  void Serve() {
    bool did = true;
    double done_at = -1;
    while (!HasFailure()) {
      if (did || std::exchange(woken_, false)) {
        world_.Spend(world_.dice.Real(0.0001, 0.001));
        did = loop_->RunOnce();
        CheckState();
      } else {
        world_.RunNext(kForever);
      }
      if (clients_->size() < arrivals_ || loop_->Unfinished() > 0) continue;
      if (!cluster_->calm()) continue;
      if (suspended_ && conditions_.killed_for_good && cluster_->Capacity() < kAllExperts) break;
      // Quiet: all that can come back comes back, and nothing waits for a request to come.
      if (done_at < 0) {
        done_at = world_.now();
        world_.After(30, [] {});
      }
      const int back = link_->roster().Count(RankPlace::State::kMember);
      const bool all = back == conditions_.seats || conditions_.killed_for_good;
      if (all && !suspended_ && rebalances_ == rebalances_done_) break;
      if (world_.now() > done_at + 25) {
        ADD_FAILURE() << "25 s after the last request " << back << " of " << conditions_.seats << " ranks are back, "
                      << rebalances_done_ << " of " << rebalances_ << " rebalancings have ended";
      }
    }
  }

  // --- What clients and operators do ---

  void Arrivals() {
    world_.After(arrivals_gap_ * world_.dice.Real(0, 2), [this] {
      for (int64_t i = world_.dice.Coin(0.3) ? world_.dice.Between(2, 6) : 1; i > 0; --i) {
        if (clients_->size() < arrivals_) clients_->Arrive();
      }
      woken_ = true;
      if (clients_->size() < arrivals_) Arrivals();
    });
  }

  void Disturbances() {
    world_.After(world_.dice.Real(0, 1), [this] {
      clients_->Disturb();
      woken_ = true;
      if (!cluster_->calm()) Disturbances();
    });
  }

  void Rebalancings() {
    world_.After(world_.dice.Real(0.1, 3), [this] {
      if (cluster_->calm()) return;
      ++rebalances_;
      auto answers = std::make_shared<int>(0);
      loop_->Rebalance(world_.dice.Between(-1, toy::kExperts * (conditions_.seats - 1)),
                       [this, answers](const Status& status) {
                         world_.Trace("rebalanced: ", status.message());
                         if (++*answers > 1) world_.Mistake("a rebalancing is answered twice");
                         ++rebalances_done_;
                       });
      woken_ = true;
      Rebalancings();
    });
  }

  // --- Invariants ---

  int Usable() const {
    return link_->roster().Count(RankPlace::State::kMember) + link_->roster().Count(RankPlace::State::kReady);
  }

  // Whenever the front waits for an event.
  void CheckHealth() {
    if (!started_) return;
    if (link_->generation() != seen_generation_) {
      seen_generation_ = link_->generation();
      if (link_->Health().ok()) cluster_->exhausted = 0;
    }
    const int usable = Usable();
    if (!link_->Health().ok() && cluster_->exhausted == 0 && usable > 0 && ranks_since_ < 0)
      ranks_since_ = world_.now();
    if (link_->Health().ok() || usable == 0) ranks_since_ = -1;
    // A group takes its time to be formed, also with those that do not reach each other.
    if (ranks_since_ >= 0 && world_.now() > ranks_since_ + 60) world_.Mistake("UNAVAILABLE, though there are ranks");
    if (usable > 0) none_since_ = -1;
    if (usable == 0 && none_since_ < 0) none_since_ = world_.now();
    if (usable == 0 && link_->Health().ok() && world_.now() > none_since_ + 0.5) {
      world_.Mistake("no rank is left, and health does not say so");
    }
    unavailable_ |= !link_->Health().ok();
  }

  // Between two steps.
  void CheckState() {
    ASSERT_TRUE(world_.mistakes.empty()) << world_.mistakes[0];
    const Scheduler& scheduler = loop_->scheduler();
    toy::CheckBooks(scheduler);
    const Status health = loop_->Health(1e9);
    if (!health.ok()) {
      if (!std::exchange(suspended_, true)) CheckGivenUp(health);
      ASSERT_EQ(scheduler.num_running() + scheduler.num_waiting(), 0);
      given_up_ = true;
      return;
    }
    suspended_ = false;
    const RankRoster& roster = link_->roster();
    const EngineStats stats = loop_->Stats();
    ASSERT_GE(stats.steps, steps_);
    steps_ = stats.steps;
    ASSERT_EQ(stats.group.ranks_alive, roster.Count(RankPlace::State::kMember));
    ASSERT_EQ(stats.placements->size(), static_cast<size_t>(toy::kLayers));
    bool lost = false;
    for (int slot = 0; slot < conditions_.seats; ++slot) {
      const bool member = roster.place(slot).state == RankPlace::State::kMember;
      ASSERT_TRUE(!member || scheduler.HasRank(slot)) << "slot " << slot;
      lost |= scheduler.HasRank(slot) && !member;
    }
    // One that was lost in this step is taken care of before the next.
    ASSERT_FALSE(lost && lost_in_generation_ == stats.group.generation);
    lost_in_generation_ = lost ? stats.group.generation : 0;
    if (stats.group.generation == checked_generation_) return;
    checked_generation_ = stats.group.generation;
    for (const ExpertPlacement& layer : *stats.placements) {
      for (int64_t e = 0; e < toy::kExperts; ++e) {
        ASSERT_FALSE(layer.RanksOf(e).empty());
        for (int32_t slot : layer.RanksOf(e)) ASSERT_TRUE(scheduler.HasRank(slot)) << "expert " << e;
      }
    }
  }

  // The engine has given up: it must have had to.
  void CheckGivenUp(const Status& status) {
    world_.Trace("given up: ", status.message());
    ASSERT_TRUE(absl::IsUnavailable(status)) << status;
    ASSERT_TRUE(status.message().find("could not form a group") != std::string::npos ||
                status.message().find("too few ranks") != std::string::npos)
        << status;
    if (!patient_) return;
    EXPECT_TRUE(conditions_.killed_for_good) << status;
    EXPECT_LT(cluster_->Capacity(), kAllExperts) << status;
  }

  void End(Totals* totals) {
    ASSERT_TRUE(world_.mistakes.empty()) << world_.mistakes[0];
    totals->faults += cluster_->faults();
    totals->undone += cluster_->undone();
    totals->stale += cluster_->stale_reports();
    totals->unavailable += unavailable_ ? 1 : 0;
    totals->given_up += given_up_ ? 1 : 0;
    totals->full_again += unavailable_ && !suspended_ ? 1 : 0;
    if (loop_ == nullptr) return;
    const EngineStats stats = loop_->Stats();
    clients_->Check(given_up_);
    clients_->CheckStats(stats);
    int64_t flushed = -1;
    loop_->FlushPrefixCache([&](int64_t n) { flushed = n; });
    loop_->RunOnce();
    EXPECT_GE(flushed, 0);
    EXPECT_EQ(loop_->Stats().kv_blocks_cached, 0);
    loop_->Stop();
    link_.reset();
    EXPECT_EQ(rebalances_, rebalances_done_);
    totals->steps += static_cast<int64_t>(stats.steps);
    totals->requests += clients_->size();
    totals->recoveries += stats.group.recoveries;
    totals->rebalances += stats.group.rebalances;
    totals->replays += stats.replays;
  }

  const int failures_before_ = Failures();
  toy::SimulatedWorld world_;
  const ModelSpec spec_;
  ClusterConditions conditions_;
  LoopInbox inbox_;
  std::unique_ptr<toy::SimulatedCluster> cluster_;
  std::unique_ptr<ClusterLink> link_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<toy::SimulatedClients> clients_;
  bool patient_ = true;  // waits for ranks until all are back
  bool early_ = false;   // faults begin before all ranks have come
  int64_t arrivals_ = 0;
  double arrivals_gap_ = 0;
  int rebalances_ = 0, rebalances_done_ = 0;
  bool woken_ = false;
  bool started_ = false;
  bool suspended_ = false;  // too few ranks for so long that requests have ended
  bool given_up_ = false;   // was suspended
  bool unavailable_ = false;
  uint64_t seen_generation_ = 0, checked_generation_ = 0, lost_in_generation_ = 0, steps_ = 0;
  double ranks_since_ = -1, none_since_ = -1;
};

int64_t FromEnv(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoll(text);
}

// A failed MOE_CHECK, or worse, ends the process: it says which seed it was.
char g_seed[64];
void SayTheSeed(int signal) {
  (void)!write(STDERR_FILENO, g_seed, std::strlen(g_seed));
  std::signal(signal, SIG_DFL);
}

TEST(ClusterSimulation, LostRanksNeverShowInTokens) {
  const int64_t seeds = FromEnv("MOE_SIM_SEEDS", 300);
  const int64_t first = FromEnv("MOE_SIM_FIRST", 1);
  const bool traced = FromEnv("MOE_SIM_TRACE", 0) != 0;
  const LogLevel level = GetLogLevel();
  const auto handler = std::signal(SIGABRT, SayTheSeed);
  Totals totals;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    std::snprintf(g_seed, sizeof(g_seed), "MOE_SIM_FIRST=%lld MOE_SIM_SEEDS=1\n", static_cast<long long>(seed));
    if (!traced) SetLogLevel(static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));  // nothing
    ClusterSimulation(static_cast<uint64_t>(seed), traced).Run(&totals);
    if (!HasFailure()) continue;
    if (!traced) {
      SetLogLevel(level);
      ClusterSimulation(static_cast<uint64_t>(seed), true).Run(&totals);
    }
    ADD_FAILURE() << "replay with MOE_SIM_FIRST=" << seed << " MOE_SIM_SEEDS=1 MOE_SIM_TRACE=1";
    break;
  }
  SetLogLevel(level);
  std::signal(SIGABRT, handler);
  std::printf(
      "%lld seeds, %lld requests, %lld steps, %lld faults, %llu recoveries, %llu steps taken back, %llu "
      "sequences replayed, %llu rebalancings, %llu stale reports; too few ranks in %lld, enough again in %lld, "
      "given up in %lld\n",
      static_cast<long long>(seeds), static_cast<long long>(totals.requests), static_cast<long long>(totals.steps),
      static_cast<long long>(totals.faults), static_cast<unsigned long long>(totals.recoveries),
      static_cast<unsigned long long>(totals.undone), static_cast<unsigned long long>(totals.replays),
      static_cast<unsigned long long>(totals.rebalances), static_cast<unsigned long long>(totals.stale),
      static_cast<long long>(totals.unavailable), static_cast<long long>(totals.full_again),
      static_cast<long long>(totals.given_up));
  if (seeds < 300 || HasFailure()) return;
  EXPECT_GT(totals.recoveries, 100u);
  EXPECT_GT(totals.undone, 30u);
  EXPECT_GT(totals.replays, 100u);
  EXPECT_GT(totals.rebalances, 30u);
  EXPECT_GT(totals.stale, 100u);
  EXPECT_GT(totals.full_again, 10);
  EXPECT_GT(totals.given_up, 3);
}

// Waiting for ranks ends where waiting is of no use.
TEST(ClusterSimulation, ARankThatCannotLoadEndsTheStart) {
  for (const bool starts : {false, true}) {
    toy::SimulatedWorld world(1, kLimit, false);
    ClusterConditions conditions = DrawConditions(world.dice);
    conditions.seats = 2;
    if (starts) conditions.capacity = 0;
    toy::SimulatedCluster cluster(&world, conditions);
    if (!starts) world.After(1, [&] { cluster.CannotStart(absl::ResourceExhaustedError("the experts do not fit")); });
    ClusterOptions options;
    options.terms = conditions.terms;
    options.num_slots = 3;  // one more than will come
    ClusterLink link(toy::ToySpec(), options, &cluster);
    const auto memory = link.AwaitRanks([](const std::string&, double) {});
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
    EXPECT_NE(memory.status().message().find("do not fit"), std::string::npos);
  }
}

}  // namespace
}  // namespace moe
