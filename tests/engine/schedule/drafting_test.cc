// Guesses in the scheduler: who gets how many, and what becomes of a sequence whose guesses are true or false.
#include <map>

#include "engine/device/ops.h"
#include "engine/schedule/drafter.h"
#include "engine/schedule/scheduler.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

// --- Drafter ---

// Draws the tokens one by one; returns the chance of `count` true guesses behind them.
double ChanceAfter(const std::vector<int32_t>& tokens, int64_t count, size_t prompt = 4) {
  Drafter drafter(1, 3);
  for (size_t n = prompt; n < tokens.size(); ++n) {
    drafter.Guess(std::span<const int32_t>(tokens).first(n), 5);
    drafter.Observe(tokens[n]);
  }
  return drafter.ChanceOfAll(count);
}

TEST(Drafter, ExpectsLittleAtFirst) {
  Drafter drafter(1, 3);
  EXPECT_EQ(drafter.ChanceOfAll(0), 1);
  EXPECT_LT(drafter.ChanceOfAll(1), 0.2);
  EXPECT_LT(drafter.ChanceOfAll(2), drafter.ChanceOfAll(1));
}

TEST(Drafter, LearnsThatTextRepeatsItself) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(i % 5);
  EXPECT_GT(ChanceAfter(tokens, 1), 0.9);
  EXPECT_GT(ChanceAfter(tokens, 4), 0.7);
  tokens.push_back(77);  // nothing was ever behind this one
  EXPECT_LT(ChanceAfter(tokens, 1), 0.4);
}

TEST(Drafter, LearnsThatItDoesNot) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 60; ++i) tokens.push_back(i % 2 == 0 ? 1 : 100 + i);  // behind 1 always another one
  EXPECT_LT(ChanceAfter(tokens, 1), 0.05);
}

TEST(Drafter, HoldsSeveralTokensAgainstOneGuess) {
  Drafter drafter(1, 3);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 1};
  ASSERT_EQ(drafter.Guess(tokens, 3).size(), 3u);
  const double before = drafter.ChanceOfAll(1);
  for (int32_t token : {2, 3, 4, 5}) drafter.Observe(token);  // the guesses and the one behind them
  EXPECT_GT(drafter.ChanceOfAll(1), before);
  const double known = drafter.ChanceOfAll(1);
  drafter.Observe(9);  // past all guesses: not a false one, but the stretch is over
  drafter.Observe(2);
  EXPECT_LT(drafter.ChanceOfAll(1), known);
}

// --- Scheduler ---

SchedulerOptions Options() {
  SchedulerOptions o;
  o.blocks_per_rank = 16;
  o.max_model_len = 256;
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 128;
  o.prefill_chunk_tokens = 64;
  o.speculation.tokens = 4;
  o.speculation.ngram_min = 1;
  return o;
}

// The cost of a model that is nothing but experts, `chosen` of which take part in a token.
StepCost CostOf(int64_t experts, int64_t chosen) {
  ModelSpec spec;
  spec.vocab_size = 8;
  spec.hidden_size = 64;
  spec.layers.resize(1);
  MoeSpec moe;
  moe.num_experts = experts;
  moe.top_k = chosen;
  moe.expert.intermediate_size = 4096;
  spec.layers[0].ffn = moe;
  return StepCost(spec);
}

std::shared_ptr<const Request> MakeRequest(int64_t prompt, int64_t max_new = 100) {
  auto r = std::make_shared<Request>();
  for (int64_t i = 0; i < prompt; ++i) r->prompt.push_back(static_cast<int32_t>(i + 10));
  r->max_new_tokens = max_new;
  return r;
}

std::map<SequenceId, SlicePlan> Plan(Scheduler& scheduler) {
  StepPlan plan;
  EXPECT_TRUE(scheduler.Plan(plan));
  std::map<SequenceId, SlicePlan> out;
  for (const RankPlan& rank : plan.ranks) {
    for (const SlicePlan& s : rank.slices) out[s.id] = s;
  }
  return out;
}

// The model says 7 always; `right`: at most so many guesses of each slice are true.
void Finish(Scheduler& scheduler, const std::map<SequenceId, SlicePlan>& slices, int64_t right = 100) {
  for (const auto& [id, slice] : slices) {
    scheduler.Accept(id, std::min(right, static_cast<int64_t>(slice.draft.size())));
  }
  scheduler.Commit();
  for (const auto& [id, slice] : slices) {
    if (slice.sample) scheduler.AppendToken(id, right < static_cast<int64_t>(slice.draft.size()) ? 8 : 7);
  }
}

// Decodes 7s until guesses are computed.
std::map<SequenceId, SlicePlan> PlanWithGuesses(Scheduler& scheduler, SequenceId id) {
  for (int i = 0; i < 40; ++i) {
    auto slices = Plan(scheduler);
    if (slices.contains(id) && !slices[id].draft.empty()) return slices;
    Finish(scheduler, slices);
  }
  ADD_FAILURE() << "no guesses";
  return {};
}

TEST(Drafting, OffByDefault) {
  SchedulerOptions o = Options();
  o.speculation = {};
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  for (int i = 0; i < 50; ++i) {
    auto slices = Plan(s);
    ASSERT_TRUE(slices[id].draft.empty());
    Finish(s, slices);
  }
}

TEST(Drafting, TrueGuessesMoveTheSequenceOn) {
  Scheduler s(Options());
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  auto slices = PlanWithGuesses(s, id);
  const int64_t known = s.Find(id)->known();
  const auto drafted = static_cast<int64_t>(slices[id].draft.size());
  EXPECT_TRUE(slices[id].sample);
  EXPECT_EQ(slices[id].first_pos, known - 1);
  EXPECT_EQ(slices[id].count, 1 + drafted);
  EXPECT_EQ(slices[id].draft, std::vector<int32_t>(slices[id].draft.size(), 7));
  Finish(s, slices);
  EXPECT_EQ(s.Find(id)->known(), known + drafted + 1);
  EXPECT_EQ(s.Find(id)->num_computed, known + drafted);
  EXPECT_EQ(s.guesses_proposed(), static_cast<uint64_t>(drafted));
  EXPECT_EQ(s.guesses_accepted(), static_cast<uint64_t>(drafted));
  slices = Plan(s);
  EXPECT_EQ(slices[id].first_pos, known + drafted);
}

TEST(Drafting, AFalseGuessIsWrittenOver) {
  Scheduler s(Options());
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  auto slices = PlanWithGuesses(s, id);
  while (slices[id].draft.size() < 3) {
    Finish(s, slices);
    slices = Plan(s);
  }
  const int64_t known = s.Find(id)->known();
  const uint64_t accepted = s.guesses_accepted();
  Finish(s, slices, 1);
  EXPECT_EQ(s.guesses_accepted(), accepted + 1);
  EXPECT_EQ(s.Find(id)->known(), known + 2);
  EXPECT_EQ(s.Find(id)->num_computed, known + 1);
  EXPECT_EQ(s.Find(id)->tokens[known], 7);
  EXPECT_EQ(s.Find(id)->tokens[known + 1], 8);
  slices = Plan(s);
  EXPECT_EQ(slices[id].first_pos, known + 1);
  EXPECT_TRUE(slices[id].new_blocks.empty());  // it has them
}

TEST(Drafting, WithRollbackTheAcceptedOnesAreReplayed) {
  SchedulerOptions o = Options();
  o.speculation.rolls_back = true;
  o.speculation.slices_per_rank = 1;
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  auto slices = PlanWithGuesses(s, id);
  while (slices[id].draft.size() < 3) {
    Finish(s, slices);
    slices = Plan(s);
  }
  const int64_t known = s.Find(id)->known();
  Finish(s, slices, 2);
  EXPECT_EQ(s.Find(id)->num_computed, known - 1);
  EXPECT_EQ(s.Find(id)->known(), known + 3);
  EXPECT_TRUE(s.Find(id)->decoding());
  slices = Plan(s);
  EXPECT_EQ(slices[id].first_pos, known - 1);
  EXPECT_EQ(slices[id].count, 4);
  EXPECT_TRUE(slices[id].draft.empty());
  EXPECT_TRUE(slices[id].sample);
  Finish(s, slices);
  EXPECT_EQ(s.Find(id)->num_computed, known + 3);
  EXPECT_EQ(s.Find(id)->replay, 0);
}

TEST(Drafting, NoMoreSlicesThanStatesCanBeSaved) {
  SchedulerOptions o = Options();
  o.speculation.rolls_back = true;
  o.speculation.slices_per_rank = 2;
  Scheduler s(o);
  for (int i = 0; i < 4; ++i) s.Add(MakeRequest(4), 0, 0);
  size_t most = 0;
  for (int i = 0; i < 30; ++i) {
    auto slices = Plan(s);
    size_t with = 0;
    for (const auto& [id, slice] : slices) with += slice.draft.empty() ? 0 : 1;
    most = std::max(most, with);
    Finish(s, slices);
  }
  EXPECT_EQ(most, 2u);
}

TEST(Drafting, NeverBeyondWhatTheRequestMayGenerate) {
  Scheduler s(Options());
  const SequenceId id = s.Add(MakeRequest(4, 30), 0, 0);
  bool drafted = false;
  while (s.Find(id)->known() < 34) {
    auto slices = Plan(s);
    // The slice draws a token a guess and one more.
    ASSERT_LE(s.Find(id)->known() + static_cast<int64_t>(slices[id].draft.size()) + 1, 34);
    drafted = drafted || !slices[id].draft.empty();
    Finish(s, slices);
  }
  EXPECT_TRUE(drafted);
}

TEST(Drafting, LeavesBlocksToTheRunning) {
  SchedulerOptions o = Options();
  o.blocks_per_rank = 2;
  o.max_model_len = 64;
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4, 60), 0, 0);
  for (int i = 0; i < 60 && s.Find(id)->known() < 60; ++i) {
    auto slices = Plan(s);
    const int64_t end = slices[id].first_pos + slices[id].count;
    // One of the two blocks is this sequence's; the other stays for it (it is the only one that runs).
    if (s.Find(id)->known() < kKvBlockTokens) {
      ASSERT_LE(end, kKvBlockTokens);
    }
    Finish(s, slices);
  }
}

TEST(Drafting, RowsThatCostTooMuchAreNotComputed) {
  SchedulerOptions o = Options();
  o.speculation.cost = CostOf(1000, 1);  // each row costs as much as the first
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  for (int i = 0; i < 60; ++i) {
    auto slices = Plan(s);
    ASSERT_TRUE(slices[id].draft.empty());
    Finish(s, slices);
  }
}

TEST(Drafting, StopsWhenGuessesAreFalseAndTriesAgain) {
  SchedulerOptions o = Options();
  o.speculation.cost = CostOf(8, 2);
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4, 250), 0, 0);
  Finish(s, PlanWithGuesses(s, id));
  // Every 7 is followed by something new from now on.
  int64_t with = 0;
  for (int i = 0; i < 60; ++i) {
    auto slices = Plan(s);
    with += !slices[id].draft.empty() && i >= 30 ? 1 : 0;
    s.Accept(id, 0);
    s.Commit();
    s.AppendToken(id, i % 2 == 0 ? 100 + i : 7);
  }
  EXPECT_EQ(with, 0);
  PlanWithGuesses(s, id);
}

TEST(Drafting, APreemptedSequenceForgetsItsReplay) {
  SchedulerOptions o = Options();
  o.speculation.rolls_back = true;
  o.speculation.slices_per_rank = 1;
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(4), 0, 0);
  Finish(s, PlanWithGuesses(s, id), 0);
  EXPECT_GT(s.Find(id)->replay, 0);
  s.ForgetRanks();
  EXPECT_EQ(s.Find(id)->replay, 0);
  auto slices = Plan(s);
  EXPECT_EQ(slices[id].first_pos, 0);
}

}  // namespace
}  // namespace moe
