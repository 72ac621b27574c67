#include "tests/engine/core/simulated_clients.h"

#include <algorithm>

#include "engine/device/ops.h"
#include "gtest/gtest.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe::toy {

std::vector<int32_t> Dice::Tokens(int64_t n) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(Between(0, kVocab - 1)));
  return out;
}

SchedulerOptions DrawSchedulerOptions(Dice& dice, int num_ranks) {
  SchedulerOptions o;
  o.num_ranks = num_ranks;
  o.max_model_len = dice.Between(20, 200);
  const int64_t least = (o.max_model_len + kKvBlockTokens - 1) / kKvBlockTokens;
  o.blocks_per_rank = dice.Coin(0.6) ? least + dice.Between(0, 4) : least * dice.Between(1, 8);
  o.max_num_seqs = dice.Between(1, 12);
  o.prompt_multiple = 1;
  o.prefix_cache = dice.Coin(0.7);
  if (dice.Coin(0.3)) {  // a model with recurrent state
    o.state_slots_per_rank = dice.Between(1, 8);
    o.snapshot_slots_per_rank = dice.Coin(0.7) ? dice.Between(1, 6) : 0;
    o.prompt_multiple = dice.Coin(0.5) ? dice.Between(1, 40) : 1;
  }
  o.max_num_batched_tokens = o.prompt_multiple + (dice.Coin(0.3) ? dice.Between(0, 8) : dice.Between(8, 200));
  o.prefill_chunk_tokens = dice.Between(1, 64);
  if (dice.Coin(0.6)) {
    SpeculationOptions& speculation = o.speculation;  // rows cost nothing: guesses wherever one may come true
    speculation.tokens = dice.Between(1, 8);
    speculation.ngram_min = dice.Between(1, 2);
    speculation.ngram_max = speculation.ngram_min + dice.Between(0, 3);
    speculation.rolls_back = o.state_slots_per_rank > 0 || dice.Coin(0.2);
    speculation.slices_per_rank = dice.Between(1, 5);
  }
  return o;
}

void CheckBooks(const Scheduler& scheduler) {
  const SchedulerOptions& o = scheduler.options();
  ASSERT_LE(scheduler.num_running(), o.max_num_seqs);
  std::vector<int64_t> slots(o.num_ranks, 0);
  std::vector<std::vector<int32_t>> refs(o.num_ranks, std::vector<int32_t>(o.blocks_per_rank));
  for (const Sequence* s : scheduler.running()) {
    for (int32_t b : s->blocks) ++refs[s->rank][b];
    slots[s->rank] += s->state_slot >= 0 ? 1 : 0;
    ASSERT_TRUE(scheduler.HasRank(s->rank));
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
      if (blocks.refs(static_cast<int32_t>(b)) == refs[r][b] + (published ? 1 : 0)) continue;
      ADD_FAILURE() << "rank " << r << " block " << b << ": " << blocks.refs(static_cast<int32_t>(b)) << " references, "
                    << refs[r][b] << " sequences";
      return;
    }
    ASSERT_EQ(blocks.used(), used);
    ASSERT_EQ(blocks.cached(), idle);
    ASSERT_EQ(blocks.available(), o.blocks_per_rank - used);
    ASSERT_EQ(scheduler.free_state_slots(r), o.state_slots_per_rank - slots[r]);
    // Between steps every snapshot slot is free or attached.
    ASSERT_EQ(blocks.snapshots().num_free() + blocks.snapshots().num_attached(), o.snapshot_slots_per_rank);
  }
}

struct SimulatedClients::Client : ResponseSink {
  EngineLoop* loop = nullptr;
  Request request;
  uint64_t handle = 0;  // 0: refused
  Status refused;
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

  void OnOutput(OutputChunk chunk) override {
    if (done > 0) wrong = "output after OnDone";
    const uint32_t c = chunk.choice;
    if (c >= tokens.size()) {
      wrong = "unknown choice";
      return;
    }
    if (finish[c] != FinishReason::kNone) wrong = "output after the last chunk";
    for (const TokenInfo& t : chunk.tokens) tokens[c].push_back(t.id);
    experts[c].insert(experts[c].end(), chunk.expert_ids.begin(), chunk.expert_ids.end());
    if (chunk.expert_rows * kLayers * kTopK != static_cast<int64_t>(chunk.expert_ids.size())) wrong = "expert_rows";
    if (!chunk.prompt_tokens.empty()) {
      if (!prompt.empty()) wrong = "prompt part twice";
      prompt = chunk.prompt_tokens;
    }
    finish[c] = chunk.finish;
    if (stop_after[c] >= 0 && static_cast<int64_t>(tokens[c].size()) >= stop_after[c] &&
        chunk.finish == FinishReason::kNone && tokens_at_stop.emplace(c, tokens[c].size()).second) {
      loop->StopChoice(handle, c);
    }
  }
  void OnDone(const Status& s, const RequestTimes& times) override {
    ++done;
    status = s;
    if (times.queue_seconds < 0 || times.total_seconds < times.queue_seconds) wrong = "times are wrong";
  }
};

SimulatedClients::SimulatedClients(Dice* dice, EngineLoop* loop)
    : dice_(dice), loop_(loop), max_model_len_(loop->scheduler().options().max_model_len) {
  for (int i = 0; i < 3; ++i) prefixes_.push_back(dice_->Tokens(dice_->Between(1, max_model_len_)));
}

SimulatedClients::~SimulatedClients() = default;

void SimulatedClients::Arrive() {
  Dice& dice = *dice_;
  auto client = std::make_shared<Client>();
  client->loop = loop_;
  Request& r = client->request;
  const int64_t limit = max_model_len_ - 1;
  if (dice.Coin(0.5)) {
    r.prompt = prefixes_[dice.Between(0, 2)];
    r.prompt.resize(dice.Between(1, static_cast<int64_t>(r.prompt.size())));
  }
  const std::vector<int32_t> tail = dice.Tokens(dice.Coin(0.8) ? dice.Between(1, 20) : dice.Between(1, limit));
  r.prompt.insert(r.prompt.end(), tail.begin(), tail.end());
  if (static_cast<int64_t>(r.prompt.size()) > limit) r.prompt.resize(limit);
  r.sampling.seed = dice.Bits();
  r.num_choices = dice.Coin(0.3) ? static_cast<uint32_t>(dice.Between(2, 5)) : 1;
  r.max_new_tokens = dice.Coin(0.8) ? dice.Between(1, 40) : 1000000;
  r.min_new_tokens = dice.Coin(0.3) ? dice.Between(0, std::min<int64_t>(r.max_new_tokens, 20)) : 0;
  if (dice.Coin(0.5)) r.eos_token_ids = dice.Tokens(dice.Between(1, 2));
  if (dice.Coin(0.3)) r.stop_token_ids = dice.Tokens(dice.Between(1, 2));
  if (dice.Coin(0.15)) r.prompt_logprobs = 1;
  r.routed_experts = dice.Coin(0.15);
  r.priority = dice.Coin(0.7) ? 0 : static_cast<int32_t>(dice.Between(-2, 2));
  r.cache_salt = dice.Coin(0.8) ? "" : "salt";
  client->tokens.resize(r.num_choices);
  client->experts.resize(r.num_choices);
  client->finish.resize(r.num_choices, FinishReason::kNone);
  for (uint32_t c = 0; c < r.num_choices; ++c) {
    client->stop_after.push_back(dice.Coin(0.15) ? dice.Between(1, 20) : -1);
  }
  const StatusOr<uint64_t> handle = loop_->Submit(r, client);
  if (handle.ok()) {
    client->handle = *handle;
  } else {
    client->refused = handle.status();
  }
  clients_.push_back(std::move(client));
}

void SimulatedClients::Disturb() {
  if (clients_.empty()) return;
  Client& client = *clients_[dice_->Between(0, size() - 1)];
  if (client.handle == 0) return;
  switch (dice_->Between(0, 5)) {
    case 0:
      client.cancelled = true;
      loop_->Cancel(client.handle);
      if (dice_->Coin(0.2)) loop_->Cancel(client.handle);
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

void SimulatedClients::Check(bool given_up) const {
  for (const auto& client : clients_) CheckClient(*client, given_up);
}

void SimulatedClients::CheckStats(const EngineStats& stats) const {
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  uint64_t ok = 0, cancelled = 0, failed = 0, rejected = 0, generated = 0, finishes = 0;
  for (const auto& client : clients_) {
    if (client->done > 0) {
      const Status& status = client->status;
      ++(status.ok() ? ok : absl::IsCancelled(status) ? cancelled : failed);
    }
    rejected += absl::IsResourceExhausted(client->refused) ? 1 : 0;
    for (const auto& t : client->tokens) generated += t.size();
    for (FinishReason f : client->finish) finishes += f != FinishReason::kNone ? 1 : 0;
  }
  EXPECT_EQ(stats.requests_ok, ok);
  EXPECT_EQ(stats.requests_cancelled, cancelled);
  EXPECT_EQ(stats.requests_failed, failed);
  EXPECT_EQ(stats.requests_rejected_queue_full, rejected);
  EXPECT_EQ(stats.generated_tokens, generated);
  EXPECT_EQ(stats.finish_eos + stats.finish_stop + stats.finish_length + stats.finish_cancelled, finishes);
  EXPECT_EQ(stats.step_seconds.count(), stats.steps);
}

void SimulatedClients::CheckClient(const Client& client, bool given_up) const {
  if (client.handle == 0) {
    EXPECT_EQ(client.done, 0);
    EXPECT_TRUE(absl::IsResourceExhausted(client.refused) || (given_up && absl::IsUnavailable(client.refused)))
        << client.refused;
    return;
  }
  EXPECT_EQ(client.wrong, "");
  ASSERT_EQ(client.done, 1) << "handle " << client.handle;
  if (!client.status.ok()) {
    EXPECT_TRUE((absl::IsCancelled(client.status) && client.cancelled) ||
                (absl::IsUnavailable(client.status) && given_up))
        << "handle " << client.handle << ": " << client.status;
  }
  for (uint32_t c = 0; c < client.request.num_choices; ++c) {
    const Undisturbed want = RunAlone(client.request, c, max_model_len_);
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
      ASSERT_EQ(client.experts[c].size(), rows * kLayers * kTopK);
      for (size_t p = 0; p < rows; p += 7) {
        const std::vector<int32_t> row = Experts(all, static_cast<int64_t>(p));
        ASSERT_TRUE(std::equal(row.begin(), row.end(), client.experts[c].begin() + p * row.size()));
      }
    }
  }
  if (client.request.prompt_logprobs && !client.tokens[0].empty()) {
    ASSERT_EQ(client.prompt.size(), client.request.prompt.size());
    for (size_t p = 0; p < client.prompt.size(); ++p) {
      ASSERT_EQ(client.prompt[p].id, client.request.prompt[p]);
      ASSERT_EQ(client.prompt[p].logprob, p == 0 ? 0 : PromptLogprob(client.request.prompt, static_cast<int64_t>(p)));
    }
  }
}

}  // namespace moe::toy
