// Engine over rank processes (RankNodes on threads): the same bits as one rank, also while ranks are killed, come back
// and are rebalanced.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "engine/core/engine.h"
#include "loaders/model_files.h"
#include "nlohmann/json.hpp"
#include "parallel/gloo_group.h"
#include "tests/engine/core/thread_cluster.h"

namespace moe {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<LoadedModel> Model(const std::string& name) {
  const auto files = OpenModelDirectory(std::string(MOE_SOURCE_DIR) + "/loaders/demo/" + name);
  EXPECT_TRUE(files.ok()) << files.status();
  auto model = LoadModel(**files, {});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Everything that a request got.
class Collector : public ResponseSink {
 public:
  void OnOutput(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    for (int kind = 0; kind < 2; ++kind) {
      for (const TokenInfo& token : kind == 0 ? chunk.prompt_tokens : chunk.tokens) {
        bits_[kind].push_back(static_cast<uint32_t>(token.id));
        bits_[kind].push_back(std::bit_cast<uint32_t>(token.logprob));
      }
    }
    bits_[2].insert(bits_[2].end(), chunk.expert_ids.begin(), chunk.expert_ids.end());
  }
  void OnDone(const Status& status, const RequestTimes&) override {
    {
      const std::lock_guard lock(mutex_);
      ++done_;
      status_ = status;
    }
    changed_.notify_all();
  }
  bool Await(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return done_ > 0; });
  }
  std::vector<uint32_t> bits() const {
    const std::lock_guard lock(mutex_);
    std::vector<uint32_t> all;
    for (const auto& kind : bits_) {
      all.push_back(static_cast<uint32_t>(kind.size()));
      all.insert(all.end(), kind.begin(), kind.end());
    }
    return all;
  }
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  int done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::vector<uint32_t>, 3> bits_;  // of prompt tokens, tokens, experts
  Status status_;
  int done_ = 0;
};

constexpr int kRequests = 12;

std::vector<Request> Requests(int64_t new_tokens) {
  std::ifstream in(std::string(MOE_TEST_DATA_DIR) + "/demo/shakespeare-qwen3moe.golden.json");
  const auto ids = nlohmann::json::parse(in)["validation"]["ids"].get<std::vector<int32_t>>();
  std::vector<Request> requests;
  size_t begin = 0;
  for (int i = 0; i < kRequests; ++i) {
    Request r;
    const size_t length = 1 + static_cast<size_t>(i) * 9;
    r.prompt.assign(ids.begin() + begin, ids.begin() + begin + length);
    begin += length;
    r.max_new_tokens = new_tokens;
    r.logprobs = 0;
    if (i % 3 == 0) r.prompt_logprobs = 0;
    r.routed_experts = i % 4 == 0;
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    r.sampling.seed = static_cast<uint64_t>(i);
    if (i % 5 == 1) r.sampling.frequency_penalty = 0.5f;
    requests.push_back(std::move(r));
  }
  return requests;
}

struct Case {
  std::string model;
  int ranks;
  std::string transport;  // "memory", or one of ParseTransport
  std::string speculative = "off";
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string name = Cat(c.model.substr(c.model.find('-') + 1), "_", c.ranks, "_", c.transport,
                         c.speculative == "off" ? "" : "_ngram");
  return name;
}

class Cluster : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().transport == "gloo" && !HasGloo()) GTEST_SKIP() << "built without Gloo";
  }

  EngineOptions Options() const {
    EngineOptions options;
    options.threads = 1;
    options.max_model_len = 512;
    options.max_num_seqs = 32;
    options.kv_cache_memory_gib = 0.05;
    options.speculative = GetParam().speculative;
    options.rank_recovery_timeout = 20;
    return options;
  }

  // With a rank's thread for each process.
  void Start(const EngineOptions& base, int processes) {
    EngineOptions options = base;
    options.expert_parallel_size = GetParam().ranks;
    const bool sockets = GetParam().transport != "memory";
    if (sockets) options.rank_transport = GetParam().transport;
    auto transport = std::make_unique<ThreadCluster>([] { return Model(GetParam().model); }, sockets);
    cluster_ = transport.get();
    for (int i = 0; i < processes; ++i) cluster_->Start();
    auto engine = Engine::Create(Model(GetParam().model), options, nullptr, std::move(transport));
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // What the requests get from one rank in this process.
  std::vector<std::vector<uint32_t>> Expected(const std::vector<Request>& requests) const {
    auto engine = Engine::Create(Model(GetParam().model), Options(), nullptr);
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<std::vector<uint32_t>> expected;
    for (const Request& request : requests) {
      auto sink = std::make_shared<Collector>();
      EXPECT_TRUE((*engine)->Submit(request, sink).ok());
      EXPECT_TRUE(sink->Await(60s));
      expected.push_back(sink->bits());
    }
    return expected;
  }

  std::vector<std::shared_ptr<Collector>> SubmitAll(const std::vector<Request>& requests) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(engine_->Submit(request, sinks.back()).ok());
    }
    return sinks;
  }

  static void Compare(const std::vector<std::shared_ptr<Collector>>& sinks,
                      const std::vector<std::vector<uint32_t>>& expected) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->Await(120s)) << "request " << i << " does not end";
      EXPECT_TRUE(sinks[i]->status().ok()) << "request " << i << ": " << sinks[i]->status();
      EXPECT_EQ(sinks[i]->bits(), expected[i]) << "request " << i;
      EXPECT_EQ(sinks[i]->done(), 1);
    }
  }

  template <typename Predicate>
  static bool Eventually(Predicate predicate, std::chrono::seconds limit = 30s) {
    const auto give_up = std::chrono::steady_clock::now() + limit;
    while (!predicate()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }

  ThreadCluster* cluster_ = nullptr;  // of engine_
  std::unique_ptr<Engine> engine_;
};

TEST_P(Cluster, SameBitsAsOneRank) {
  const std::vector<Request> requests = Requests(24);
  ASSERT_NO_FATAL_FAILURE(Start(Options(), GetParam().ranks));
  Compare(SubmitAll(requests), Expected(requests));
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.group.ranks_alive, GetParam().ranks);
  EXPECT_EQ(stats.group.generation, 1u);
  uint64_t computed = 0, routed = 0;
  for (uint64_t rows : stats.rank_expert_tokens) computed += rows;
  for (const MoeLayerStats& layer : stats.moe_layers) {
    for (uint64_t rows : layer.tokens_per_expert) routed += rows;
  }
  EXPECT_EQ(computed, routed);
}

TEST_P(Cluster, KilledRanksLoseNoToken) {
  const std::vector<Request> requests = Requests(60);
  const auto expected = Expected(requests);
  ASSERT_NO_FATAL_FAILURE(Start(Options(), GetParam().ranks));
  std::mt19937 gen(static_cast<unsigned>(GetParam().ranks));
  for (int round = 0; round < 6; ++round) {
    const auto sinks = SubmitAll(requests);
    std::this_thread::sleep_for(std::chrono::milliseconds(gen() % 120));
    std::vector<RankTransport::LinkId> alive = cluster_->Alive();
    ASSERT_FALSE(alive.empty());
    // Sometimes several at once, in one round all.
    const size_t kills = round == 5 ? alive.size() : 1 + gen() % alive.size() / 2;
    std::shuffle(alive.begin(), alive.end(), gen);
    for (size_t k = 0; k < kills; ++k) cluster_->Kill(alive[k]);
    std::this_thread::sleep_for(std::chrono::milliseconds(gen() % 50));
    for (size_t k = 0; k < kills; ++k) cluster_->Start();
    Compare(sinks, expected);
  }
  EXPECT_TRUE(Eventually([&] { return engine_->Stats().group.ranks_alive == GetParam().ranks; }));
  EXPECT_TRUE(Eventually([&] { return engine_->Health(10).ok(); }));
  EXPECT_TRUE(Eventually([&] { return engine_->Stats().running + engine_->Stats().waiting == 0; }));
  EXPECT_GE(engine_->Stats().group.recoveries, 3u);  // two deaths in a row may be one recovery
}

TEST_P(Cluster, RebalancingUnderLoadChangesNoToken) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "one rank";
  const std::vector<Request> requests = Requests(60);
  const auto expected = Expected(requests);
  ASSERT_NO_FATAL_FAILURE(Start(Options(), GetParam().ranks));
  for (int round = 0; round < 4; ++round) {
    const auto sinks = SubmitAll(requests);
    std::atomic<int> done{0};
    Status outcome = absl::UnknownError("not called");
    engine_->Rebalance(round * 2, [&](const Status& status) {
      outcome = status;
      ++done;
    });
    ASSERT_TRUE(Eventually([&] { return done > 0; }));
    EXPECT_TRUE(outcome.ok()) << outcome;
    Compare(sinks, expected);
    const EngineStats stats = engine_->Stats();
    int64_t replicas = 0;
    const ExpertPlacement& layer = (*stats.placements)[0];
    for (int64_t e = 0; e < layer.num_experts(); ++e) replicas += static_cast<int64_t>(layer.RanksOf(e).size());
    EXPECT_LE(replicas, layer.num_experts() + round * 2);
    EXPECT_EQ(stats.group.rebalances, static_cast<uint64_t>(round + 1));
  }
  Status refused;
  std::atomic<int> done{0};
  engine_->Rebalance(1000000, [&](const Status& status) {
    refused = status;
    ++done;
  });
  ASSERT_TRUE(Eventually([&] { return done > 0; }));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Cluster, StrangersAreRefused) {
  const std::vector<Request> requests = Requests(20);
  ASSERT_NO_FATAL_FAILURE(Start(Options(), GetParam().ranks));
  const auto one_too_many = cluster_->Start();
  const Status outcome = cluster_->Outcome(one_too_many);
  EXPECT_NE(outcome.message().find("are there"), std::string::npos) << outcome;
  cluster_->Kill(cluster_->Alive().front());
  const auto other_build = cluster_->Start({.build = "another", .host = "here", .threads = 1});
  const Status refused = cluster_->Outcome(other_build);
  EXPECT_NE(refused.message().find("build another"), std::string::npos) << refused;
  cluster_->Start();
  Compare(SubmitAll(requests), Expected(requests));
}

TEST_P(Cluster, WithoutRanksRequestsEndAndHealthSaysSo) {
  EngineOptions options = Options();
  options.rank_recovery_timeout = 0.5;
  ASSERT_NO_FATAL_FAILURE(Start(options, GetParam().ranks));
  const auto sinks = SubmitAll(Requests(300));
  for (RankTransport::LinkId link : cluster_->Alive()) cluster_->Kill(link);
  EXPECT_TRUE(Eventually([&] { return !engine_->Health(10).ok(); }, 2s));
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->Await(10s));
    EXPECT_EQ(sink->status().code(), absl::StatusCode::kUnavailable) << sink->status();
  }
  const std::vector<Request> requests = Requests(20);
  EXPECT_EQ(engine_->Submit(requests[0], std::make_shared<Collector>()).status().code(),
            absl::StatusCode::kUnavailable);
  // Ranks that come back find it waiting.
  for (int i = 0; i < GetParam().ranks; ++i) cluster_->Start();
  EXPECT_TRUE(Eventually([&] { return engine_->Health(10).ok(); }));
  EXPECT_TRUE(Eventually([&] { return engine_->Submit(requests[0], std::make_shared<Collector>()).ok(); }));
  Compare(SubmitAll(requests), Expected(requests));
}

INSTANTIATE_TEST_SUITE_P(
    All, Cluster,
    testing::Values(Case{"shakespeare-qwen3moe", 2, "gloo"}, Case{"shakespeare-nemotronh", 3, "tcp"},
                    Case{"shakespeare-qwen3moe", 4, "memory"}, Case{"shakespeare-qwen3moe", 1, "memory"},
                    Case{"shakespeare-qwen3moe", 3, "tcp", "ngram"}, Case{"shakespeare-nemotronh", 4, "gloo", "ngram"},
                    Case{"shakespeare-nemotronh", 8, "tcp"}),
    Name);

}  // namespace
}  // namespace moe
