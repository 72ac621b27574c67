// Random schedules, single-threaded and repeatable from a seed: every request's output must be what it is alone,
// whatever arrives, is cancelled, preempted, shared or stopped around it.
//   MOE_SIM_SEEDS=100000 MOE_SIM_FIRST=1 engine_loop_test --gtest_filter='Simulation.*'
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "engine/core/engine_loop.h"
#include "engine/device/ops.h"
#include "gtest/gtest.h"
#include "tests/engine/core/loop_testing.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe {
namespace {

using toy::ToyRanks;
using toy::ToySpec;

class Simulation;

struct Client : ResponseSink {
  Simulation* sim = nullptr;
  Request request;
  uint64_t handle = 0;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<int32_t>> experts;
  std::vector<TokenInfo> prompt;
  std::vector<FinishReason> finish;
  std::vector<int64_t> stop_after;            // StopChoice once that many tokens have come; -1: never
  std::map<uint32_t, size_t> tokens_at_stop;  // choices for which StopChoice was called
  bool cancelled = false, aborted = false;
  int done = 0;
  Status status;
  std::string wrong;

  void OnOutput(OutputChunk chunk) override;
  void OnDone(const Status& s, const RequestTimes& times) override {
    ++done;
    status = s;
    if (times.queue_seconds < 0 || times.total_seconds < times.queue_seconds) wrong = "times are wrong";
  }
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : gen_(seed), seed_(seed), spec_(ToySpec()) {
    SchedulerOptions& o = options_.scheduler;
    o.num_ranks = Coin(0.3) ? Between(2, 3) : 1;
    o.max_model_len = Between(20, 200);
    const int64_t least = (o.max_model_len + kKvBlockTokens - 1) / kKvBlockTokens;
    o.blocks_per_rank = Coin(0.6) ? least + Between(0, 4) : least * Between(1, 8);
    o.max_num_seqs = Between(1, 12);
    o.prompt_multiple = 1;
    o.prefix_cache = Coin(0.7);
    if (Coin(0.3)) {  // a model with recurrent state
      o.state_slots_per_rank = Between(1, 8);
      o.snapshot_slots_per_rank = Coin(0.7) ? Between(1, 6) : 0;
      o.prompt_multiple = Coin(0.5) ? Between(1, 40) : 1;
    }
    o.max_num_batched_tokens = o.prompt_multiple + (Coin(0.3) ? Between(0, 8) : Between(8, 200));
    o.prefill_chunk_tokens = Between(1, 64);
    if (Coin(0.6)) {
      SpeculationOptions& speculation = o.speculation;  // rows cost nothing: guesses wherever one may come true
      speculation.tokens = Between(1, 8);
      speculation.ngram_min = Between(1, 2);
      speculation.ngram_max = speculation.ngram_min + Between(0, 3);
      speculation.rolls_back = o.state_slots_per_rank > 0 || Coin(0.2);
      speculation.slices_per_rank = Between(1, 5);
    }
    options_.max_queue = Coin(0.1) ? 3 : 1000;
    ranks_ = std::make_unique<ToyRanks>(o);
    loop_ = std::make_unique<EngineLoop>(spec_, options_, inbox_, *ranks_, [this] { return now_; });
    ranks_->during_step = [this] {
      now_ += 0.001 * Between(1, 20);
      Disturb(0.15);
      return absl::OkStatus();
    };
    for (int i = 0; i < 3; ++i) prefixes_.push_back(RandomTokens(Between(1, o.max_model_len)));
  }

  void Run() {
    const int arrivals = Between(1, 40);
    int64_t idle = 0;
    while (static_cast<int>(clients_.size()) < arrivals || loop_->Unfinished() > 0) {
      now_ += 0.0001;
      if (static_cast<int>(clients_.size()) < arrivals) {
        for (int i = Coin(0.3) ? Between(1, 6) : 0; i > 0; --i) Arrive();
      }
      Disturb(0.1);
      const bool did = loop_->RunOnce();
      CheckState();
      idle = did ? 0 : idle + 1;
      ASSERT_LT(idle, 1000) << "nothing happens";
      ASSERT_LT(ranks_->steps(), 200000) << "no end in sight";
      if (HasFailure()) return;
    }
    CheckEnd();
  }

  void Stop(Client& client, uint32_t choice) { loop_->StopChoice(client.handle, choice); }
  bool HasFailure() const { return ::testing::Test::HasFailure(); }
  int64_t max_model_len() const { return options_.scheduler.max_model_len; }
  uint64_t preemptions() const { return loop_->scheduler().preemptions(); }
  uint64_t prefix_hits() const { return loop_->scheduler().prefix_hits(); }
  int64_t steps() const { return ranks_->steps(); }
  int64_t guesses() const { return ranks_->guesses(); }
  int64_t accepted() const { return ranks_->accepted(); }

 private:
  int64_t Between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(gen_); }
  bool Coin(double p) { return std::uniform_real_distribution<double>(0, 1)(gen_) < p; }
  std::vector<int32_t> RandomTokens(int64_t n) {
    std::vector<int32_t> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(Between(0, toy::kVocab - 1)));
    return out;
  }

  void Arrive() {
    auto client = std::make_shared<Client>();
    client->sim = this;
    Request& r = client->request;
    const int64_t limit = max_model_len() - 1;
    if (Coin(0.5)) {
      r.prompt = prefixes_[Between(0, 2)];
      r.prompt.resize(Between(1, static_cast<int64_t>(r.prompt.size())));
    }
    const std::vector<int32_t> tail = RandomTokens(Coin(0.8) ? Between(1, 20) : Between(1, limit));
    r.prompt.insert(r.prompt.end(), tail.begin(), tail.end());
    if (static_cast<int64_t>(r.prompt.size()) > limit) r.prompt.resize(limit);
    r.sampling.seed = gen_();
    r.num_choices = Coin(0.3) ? static_cast<uint32_t>(Between(2, 5)) : 1;
    r.max_new_tokens = Coin(0.8) ? Between(1, 40) : 1000000;
    r.min_new_tokens = Coin(0.3) ? Between(0, std::min<int64_t>(r.max_new_tokens, 20)) : 0;
    if (Coin(0.5)) r.eos_token_ids = RandomTokens(Between(1, 2));
    if (Coin(0.3)) r.stop_token_ids = RandomTokens(Between(1, 2));
    if (Coin(0.15)) r.prompt_logprobs = 1;
    r.routed_experts = Coin(0.15);
    r.priority = Coin(0.7) ? 0 : static_cast<int32_t>(Between(-2, 2));
    r.cache_salt = Coin(0.8) ? "" : "salt";
    client->tokens.resize(r.num_choices);
    client->experts.resize(r.num_choices);
    client->finish.resize(r.num_choices, FinishReason::kNone);
    for (uint32_t c = 0; c < r.num_choices; ++c) client->stop_after.push_back(Coin(0.15) ? Between(1, 20) : -1);
    StatusOr<uint64_t> handle = loop_->Submit(r, client);
    if (!handle.ok()) {
      ASSERT_EQ(handle.status().code(), absl::StatusCode::kResourceExhausted) << handle.status();
      client->handle = 0;
    } else {
      client->handle = *handle;
    }
    clients_.push_back(std::move(client));
  }

  void Disturb(double p) {
    if (clients_.empty() || !Coin(p)) return;
    Client& client = *clients_[Between(0, static_cast<int64_t>(clients_.size()) - 1)];
    if (client.handle == 0) return;
    switch (Between(0, 5)) {
      case 0:
        client.cancelled = true;
        loop_->Cancel(client.handle);
        if (Coin(0.2)) loop_->Cancel(client.handle);
        break;
      case 1:
        client.aborted = true;
        loop_->Abort(client.handle);
        break;
      case 2:
        loop_->FlushPrefixCache([](int64_t) {});
        break;
      case 3:
        loop_->Cancel(123456789);
        loop_->StopChoice(987654321, 7);
        loop_->StopChoice(client.handle, 77);
        break;
      default:
        break;
    }
  }

  // Reference counts, gauges and limits, recomputed from the running sequences.
  void CheckState() {
    const Scheduler& scheduler = loop_->scheduler();
    const SchedulerOptions& o = options_.scheduler;
    ASSERT_TRUE(ranks_->mistakes().empty()) << ranks_->mistakes()[0];
    ASSERT_LE(scheduler.num_running(), o.max_num_seqs);
    std::vector<int64_t> slots(o.num_ranks, 0);
    std::vector<std::vector<int32_t>> refs(o.num_ranks, std::vector<int32_t>(o.blocks_per_rank));
    for (const Sequence* s : scheduler.running()) {
      for (int32_t b : s->blocks) ++refs[s->rank][b];
      slots[s->rank] += s->state_slot >= 0 ? 1 : 0;
      ASSERT_LE(s->num_computed, s->known());
      ASSERT_GE(static_cast<int64_t>(s->blocks.size()) * kKvBlockTokens, s->num_computed);
    }
    for (int r = 0; r < o.num_ranks; ++r) {
      const RankBlocks& blocks = scheduler.rank_blocks(r);
      int64_t used = 0, idle = 0;
      for (int64_t b = 0; b < o.blocks_per_rank; ++b) {
        const bool published = blocks.IsPublished(static_cast<int32_t>(b));
        used += refs[r][b] > 0 ? 1 : 0;
        idle += refs[r][b] == 0 && published ? 1 : 0;
        ASSERT_EQ(blocks.refs(static_cast<int32_t>(b)), refs[r][b] + (published ? 1 : 0))
            << "rank " << r << " block " << b;
      }
      ASSERT_EQ(blocks.used(), used);
      ASSERT_EQ(blocks.cached(), idle);
      ASSERT_EQ(blocks.available(), o.blocks_per_rank - used);
      ASSERT_EQ(scheduler.free_state_slots(r), o.state_slots_per_rank - slots[r]);
      // Between steps every snapshot slot is free or attached.
      const int64_t snapshots = scheduler.options().snapshot_slots_per_rank;
      ASSERT_EQ(blocks.snapshots().num_free() + blocks.snapshots().num_attached(), snapshots);
    }
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
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    int64_t flushed = -1;
    loop_->FlushPrefixCache([&](int64_t n) { flushed = n; });
    loop_->RunOnce();
    EXPECT_EQ(flushed, stats.kv_blocks_cached);
    EXPECT_EQ(loop_->Stats().kv_blocks_cached, 0);
    uint64_t ok = 0, cancelled = 0, rejected = 0, generated = 0, finishes = 0;
    for (const auto& client : clients_) {
      CheckClient(*client);
      ok += client->done > 0 && client->status.ok() ? 1 : 0;
      cancelled += client->done > 0 && !client->status.ok() ? 1 : 0;
      rejected += client->handle == 0 ? 1 : 0;
      for (const auto& t : client->tokens) generated += t.size();
      for (FinishReason f : client->finish) finishes += f != FinishReason::kNone ? 1 : 0;
    }
    EXPECT_EQ(stats.requests_ok, ok);
    EXPECT_EQ(stats.requests_cancelled, cancelled);
    EXPECT_EQ(stats.requests_rejected_queue_full, rejected);
    EXPECT_EQ(stats.requests_failed, 0u);
    EXPECT_EQ(stats.generated_tokens, generated);
    EXPECT_EQ(stats.finish_eos + stats.finish_stop + stats.finish_length + stats.finish_cancelled, finishes);
    EXPECT_EQ(stats.step_seconds.count(), stats.steps);
  }

  void CheckClient(const Client& client) {
    if (client.handle == 0) {
      EXPECT_EQ(client.done, 0);
      return;
    }
    EXPECT_EQ(client.wrong, "");
    ASSERT_EQ(client.done, 1) << "handle " << client.handle;
    if (!client.status.ok()) {
      EXPECT_EQ(client.status.code(), absl::StatusCode::kCancelled);
      EXPECT_TRUE(client.cancelled);
    }
    for (uint32_t c = 0; c < client.request.num_choices; ++c) {
      const toy::Undisturbed want = toy::RunAlone(client.request, c, max_model_len());
      const std::vector<int32_t>& got = client.tokens[c];
      ASSERT_LE(got.size(), want.tokens.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], want.tokens[i]) << "handle " << client.handle << " choice " << c << " token " << i;
      }
      switch (client.finish[c]) {
        case FinishReason::kNone:
          EXPECT_FALSE(client.status.ok());
          break;
        case FinishReason::kCancelled:
          EXPECT_TRUE(client.aborted);
          break;
        default:
          if (client.finish[c] == FinishReason::kStop && client.tokens_at_stop.contains(c) &&
              client.tokens_at_stop.at(c) == got.size()) {
            break;  // stopped by the text side: nothing after the notice
          }
          EXPECT_EQ(got.size(), want.tokens.size());
          EXPECT_EQ(client.finish[c], want.finish);
      }
      std::vector<int32_t> all = client.request.prompt;
      all.insert(all.end(), got.begin(), got.end());
      if (client.request.routed_experts && !got.empty()) {
        // Every token that went through the model; the last one did not.
        const size_t rows = all.size() - 1;
        ASSERT_EQ(client.experts[c].size(), rows * toy::kLayers * toy::kTopK);
        for (size_t p = 0; p < rows; p += 7) {
          const std::vector<int32_t> row = toy::Experts(all, static_cast<int64_t>(p));
          ASSERT_TRUE(std::equal(row.begin(), row.end(), client.experts[c].begin() + p * row.size()));
        }
      }
    }
    if (client.request.prompt_logprobs && !client.tokens[0].empty()) {
      ASSERT_EQ(client.prompt.size(), client.request.prompt.size());
      for (size_t p = 0; p < client.prompt.size(); ++p) {
        ASSERT_EQ(client.prompt[p].id, client.request.prompt[p]);
        ASSERT_EQ(client.prompt[p].logprob,
                  p == 0 ? 0 : toy::PromptLogprob(client.request.prompt, static_cast<int64_t>(p)));
      }
    }
  }

  std::mt19937_64 gen_;
  uint64_t seed_;
  ModelSpec spec_;
  EngineLoopOptions options_;
  double now_ = 100;
  LoopInbox inbox_;
  std::unique_ptr<ToyRanks> ranks_;
  std::unique_ptr<EngineLoop> loop_;
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<std::shared_ptr<Client>> clients_;
  EngineStats last_;
};

void Client::OnOutput(OutputChunk chunk) {
  if (done > 0) wrong = "output after OnDone";
  const uint32_t c = chunk.choice;
  if (c >= tokens.size()) {
    wrong = "unknown choice";
    return;
  }
  if (finish[c] != FinishReason::kNone) wrong = "output after the last chunk";
  for (const TokenInfo& t : chunk.tokens) tokens[c].push_back(t.id);
  experts[c].insert(experts[c].end(), chunk.expert_ids.begin(), chunk.expert_ids.end());
  if (chunk.expert_rows * toy::kLayers * toy::kTopK != static_cast<int64_t>(chunk.expert_ids.size())) {
    wrong = "expert_rows";
  }
  if (!chunk.prompt_tokens.empty()) {
    if (!prompt.empty()) wrong = "prompt part twice";
    prompt = chunk.prompt_tokens;
  }
  finish[c] = chunk.finish;
  if (stop_after[c] >= 0 && static_cast<int64_t>(tokens[c].size()) >= stop_after[c] &&
      chunk.finish == FinishReason::kNone && tokens_at_stop.emplace(c, tokens[c].size()).second) {
    sim->Stop(*this, c);
  }
}

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
