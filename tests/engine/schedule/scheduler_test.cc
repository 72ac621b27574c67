#include "engine/schedule/scheduler.h"

#include <map>

#include "engine/device/ops.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

SchedulerOptions Options() {
  SchedulerOptions o;
  o.blocks_per_rank = 16;
  o.max_model_len = 256;
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 128;
  o.prefill_chunk_tokens = 64;
  return o;
}

std::shared_ptr<const Request> MakeRequest(int64_t prompt, int32_t first = 0, int32_t priority = 0) {
  auto r = std::make_shared<Request>();
  for (int64_t i = 0; i < prompt; ++i) r->prompt.push_back(first + static_cast<int32_t>(i));
  r->max_new_tokens = 100;
  r->priority = priority;
  return r;
}

// Slices of a plan by sequence.
std::map<SequenceId, SlicePlan> Slices(const StepPlan& plan) {
  std::map<SequenceId, SlicePlan> out;
  for (const RankPlan& rank : plan.ranks) {
    for (const SlicePlan& s : rank.slices) out[s.id] = s;
  }
  return out;
}

// Commits a plan and gives every sequence that sampled the token 7.
void Finish(Scheduler& scheduler, const StepPlan& plan) {
  scheduler.Commit();
  for (const auto& [id, s] : Slices(plan)) {
    if (s.sample && scheduler.Find(id) != nullptr) scheduler.AppendToken(id, 7);
  }
}

std::map<SequenceId, SlicePlan> Step(Scheduler& scheduler) {
  StepPlan plan;
  EXPECT_TRUE(scheduler.Plan(plan));
  Finish(scheduler, plan);
  return Slices(plan);
}

TEST(Scheduler, ChunksAPromptBesideDecodingOnes) {
  Scheduler s(Options());
  const SequenceId small = s.Add(MakeRequest(4), 0, 0);
  auto slices = Step(s);
  EXPECT_EQ(slices[small].count, 4);
  EXPECT_TRUE(slices[small].sample);
  const SequenceId large = s.Add(MakeRequest(150, 100), 0, 0);
  for (int64_t first : {0, 64, 128}) {
    slices = Step(s);
    EXPECT_EQ(slices[small].count, 1);
    EXPECT_EQ(slices[large].first_pos, first);
    EXPECT_EQ(slices[large].count, first == 128 ? 22 : 64);
    EXPECT_EQ(slices[large].sample, first == 128);
  }
  slices = Step(s);
  EXPECT_EQ(slices[large].first_pos, 150);
  EXPECT_EQ(slices[large].count, 1);
}

TEST(Scheduler, LongContextsAreAmongThemselves) {
  SchedulerOptions o = Options();
  o.long_context_border = 100;
  Scheduler s(o);
  const auto add = [&](int64_t prompt, int64_t max_new) {
    auto request = std::make_shared<Request>(*MakeRequest(prompt));
    request->max_new_tokens = max_new;
    return s.Add(request, 0, 0);
  };
  // What counts is how long it may become, within max_model_len.
  const SequenceId below = add(64, 36);
  EXPECT_FALSE(s.Find(below)->long_context);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_FALSE(plan.ranks[0].admit[0].long_context);
  Finish(s, plan);
  // The same prompt again: cached for one of the same kind, not for the other.
  const SequenceId above = add(64, 37);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(Slices(plan)[above].first_pos, 0);
  EXPECT_TRUE(plan.ranks[0].admit[0].long_context);
  Finish(s, plan);
  const SequenceId again = add(64, 20);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(Slices(plan)[again].first_pos, 32);
  Finish(s, plan);
  const SequenceId endless = add(64, 1000000);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(Slices(plan)[endless].first_pos, 32) << "with the other long one";
  EXPECT_TRUE(s.Find(endless)->long_context);
  Finish(s, plan);
  // As it grows it stays what it was.
  for (int i = 0; i < 30; ++i) Step(s);
  EXPECT_FALSE(s.Find(below)->long_context);
  EXPECT_GT(s.Find(below)->known(), 90);
}

TEST(Scheduler, PromptSlicesEndAtMultiples) {
  SchedulerOptions o = Options();
  o.prefix_cache = false;
  o.prompt_multiple = 48;
  o.state_slots_per_rank = 2;
  Scheduler s(o);
  const SequenceId id = s.Add(MakeRequest(150), 0, 0);
  EXPECT_EQ(Step(s)[id].count, 96);
  EXPECT_EQ(Step(s)[id].count, 54);
}

TEST(Scheduler, AdmitsByPriorityThenArrivalUpToTheLimits) {
  SchedulerOptions o = Options();
  o.max_num_seqs = 2;
  Scheduler s(o);
  const SequenceId a = s.Add(MakeRequest(4, 0), 0, 0);
  const SequenceId b = s.Add(MakeRequest(4, 10, 1), 0, 0);
  const SequenceId c = s.Add(MakeRequest(4, 20, 1), 0, 0);
  auto slices = Step(s);
  EXPECT_EQ(slices.count(a), 0u);
  EXPECT_EQ(slices.count(b), 1u);
  EXPECT_EQ(slices.count(c), 1u);
  EXPECT_EQ(s.num_waiting(), 1);
  s.Remove(b);
  EXPECT_EQ(Step(s).count(a), 1u);
}

TEST(Scheduler, RecurrentModelsNeedASlot) {
  SchedulerOptions o = Options();
  o.prefix_cache = false;
  o.state_slots_per_rank = 1;
  Scheduler s(o);
  const SequenceId a = s.Add(MakeRequest(4), 0, 0);
  const SequenceId b = s.Add(MakeRequest(4), 0, 0);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  ASSERT_EQ(plan.ranks[0].admit.size(), 1u);
  EXPECT_EQ(plan.ranks[0].admit[0].state_slot, 0);
  Finish(s, plan);
  s.Remove(a);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].drop, std::vector<SequenceId>{a});
  ASSERT_EQ(plan.ranks[0].admit.size(), 1u);
  EXPECT_EQ(plan.ranks[0].admit[0].id, b);
}

// A prefix of a recurrent model counts up to a block with a saved state.
TEST(Scheduler, RecurrentModelsGoOnFromSnapshots) {
  SchedulerOptions o = Options();
  o.state_slots_per_rank = 2;
  o.snapshot_slots_per_rank = 1;
  Scheduler s(o);
  const SequenceId a = s.Add(MakeRequest(80), 0, 0);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].slices[0].count, 64) << "the slice ends behind the last full block";
  EXPECT_EQ(plan.ranks[0].slices[0].save_snapshot, 0);
  EXPECT_EQ(plan.ranks[0].admit[0].state_snapshot, -1);
  Finish(s, plan);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].slices[0].count, 16);
  EXPECT_EQ(plan.ranks[0].slices[0].save_snapshot, -1);
  Finish(s, plan);
  s.Remove(a);

  const SequenceId b = s.Add(MakeRequest(80), 0, 0);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].slices[0].first_pos, 64);
  EXPECT_EQ(plan.ranks[0].admit[0].state_snapshot, 0);
  EXPECT_EQ(s.Find(b)->cached_prompt_tokens, 64);
  Finish(s, plan);
  s.Remove(b);

  // Another prompt takes the only slot; the first one's blocks are still there, but without a state they are no use.
  auto other = std::make_shared<Request>(*MakeRequest(80));
  other->prompt[0] += 1;
  const SequenceId c = s.Add(other, 0, 0);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].slices[0].save_snapshot, 0);
  Finish(s, plan);
  s.Remove(c);
  const SequenceId d = s.Add(MakeRequest(80), 0, 0);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(plan.ranks[0].slices[0].first_pos, 0);
  EXPECT_EQ(s.Find(d)->cached_prompt_tokens, 0);
  Finish(s, plan);
}

TEST(Scheduler, UsesCachedBlocksButComputesTheLastToken) {
  Scheduler s(Options());
  const SequenceId a = s.Add(MakeRequest(64), 0, 0);
  Step(s);
  s.Remove(a);
  EXPECT_EQ(s.rank_blocks(0).used(), 0);
  EXPECT_EQ(s.rank_blocks(0).cached(), 2);
  const SequenceId b = s.Add(MakeRequest(64), 0, 0);
  auto slices = Step(s);
  EXPECT_EQ(slices[b].first_pos, 32) << "both blocks are cached, but one token is left to compute";
  EXPECT_EQ(slices[b].new_blocks.size(), 2u);
  EXPECT_EQ(s.Find(b)->cached_prompt_tokens, 32);
  // Another salt shares nothing; neither does a request that reports about its prompt.
  auto salted = std::make_shared<Request>(*MakeRequest(64));
  salted->cache_salt = "other";
  const SequenceId c = s.Add(salted, 0, 0);
  auto reporting = std::make_shared<Request>(*MakeRequest(64));
  reporting->prompt_logprobs = 0;
  const SequenceId d = s.Add(reporting, 0, 0);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  slices = Slices(plan);
  EXPECT_EQ(slices[c].first_pos, 0);
  Finish(s, plan);
  if (slices.count(d) == 0) slices = Step(s);
  EXPECT_EQ(slices[d].first_pos, 0);
}

TEST(Scheduler, ChoicesShareTheirPromptsBlocks) {
  Scheduler s(Options());
  const auto request = MakeRequest(100);
  const SequenceId a = s.Add(request, 0, 0);
  const SequenceId b = s.Add(request, 1, a);
  const SequenceId c = s.Add(request, 2, a);
  auto slices = Step(s);
  EXPECT_EQ(slices.size(), 1u) << "the others wait for the first one's blocks";
  slices = Step(s);
  EXPECT_EQ(slices[a].count, 1);
  EXPECT_EQ(slices[b].first_pos, 96);
  EXPECT_EQ(slices[c].first_pos, 96);
  EXPECT_EQ(s.rank_blocks(0).used(), 4 + 1 + 1);  // three shared, one each
  // Without a first one, the others go on.
  s.Remove(a);
  EXPECT_EQ(Step(s).size(), 2u);
}

TEST(Scheduler, PreemptsTheYoungestOfTheLowestPriority) {
  SchedulerOptions o = Options();
  o.max_model_len = 128;
  o.blocks_per_rank = 5;
  o.prefix_cache = false;
  Scheduler s(o);
  const SequenceId important = s.Add(MakeRequest(30, 0, 1), 0, 0);
  const SequenceId first = s.Add(MakeRequest(30), 0, 0);
  const SequenceId second = s.Add(MakeRequest(30), 0, 0);
  StepPlan plan;
  bool preempted = false;
  for (int i = 0; i < 60 && !preempted; ++i) {
    ASSERT_TRUE(s.Plan(plan));
    for (SequenceId id : plan.ranks[0].drop) {
      EXPECT_EQ(id, second);
      preempted = true;
    }
    Finish(s, plan);
  }
  EXPECT_TRUE(preempted);
  EXPECT_EQ(s.preemptions(), 1u);
  const Sequence* victim = s.Find(second);
  EXPECT_FALSE(victim->running());
  EXPECT_GT(victim->known(), 30) << "it keeps its tokens";
  EXPECT_EQ(victim->num_computed, 0);
  s.Remove(important);
  s.Remove(first);
  // It comes back with all its tokens, the prompt and the rest in slices of their own.
  ASSERT_TRUE(s.Plan(plan));
  ASSERT_EQ(plan.ranks[0].admit.size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(plan.ranks[0].admit[0].tokens.size()), victim->known());
  EXPECT_EQ(Slices(plan)[second].count, 30);
  EXPECT_FALSE(Slices(plan)[second].sample);
  Finish(s, plan);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(Slices(plan)[second].first_pos, 30);
  EXPECT_TRUE(Slices(plan)[second].sample);
  Finish(s, plan);
}

TEST(Scheduler, RanksByLongestHitThenLoad) {
  SchedulerOptions o = Options();
  o.num_ranks = 2;
  Scheduler s(o);
  const SequenceId a = s.Add(MakeRequest(40, 0), 0, 0);
  const SequenceId b = s.Add(MakeRequest(40, 100), 0, 0);
  Step(s);
  EXPECT_NE(s.Find(a)->rank, s.Find(b)->rank);
  const SequenceId c = s.Add(MakeRequest(40, 100), 0, 0);
  Step(s);
  EXPECT_EQ(s.Find(c)->rank, s.Find(b)->rank) << "its prefix is there";
  const SequenceId d = s.Add(MakeRequest(40, 200), 0, 0);
  Step(s);
  EXPECT_EQ(s.Find(d)->rank, s.Find(a)->rank) << "less to do there";
}

TEST(Scheduler, AShortSharedPrefixDoesNotPileEverythingOnOneRank) {
  SchedulerOptions o = Options();
  o.num_ranks = 2;
  o.max_num_seqs = 64;
  o.blocks_per_rank = 400;
  Scheduler s(o);
  for (int i = 0; i < 40; ++i) {
    auto r = std::make_shared<Request>(*MakeRequest(40));
    r->prompt.push_back(1000 + i);
    s.Add(r, 0, 0);
    Step(s);
  }
  int64_t on_first = 0;
  for (const Sequence* q : s.running()) on_first += q->rank == 0 ? 1 : 0;
  EXPECT_GE(on_first, 12);
  EXPECT_LE(on_first, 28);
}

TEST(Scheduler, AnAbandonedStepIsPlannedAgain) {
  Scheduler s(Options());
  const SequenceId a = s.Add(MakeRequest(40), 0, 0);
  Step(s);
  Step(s);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  const SlicePlan before = Slices(plan)[a];
  s.AbandonStep();
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_TRUE(plan.ranks[0].drop.empty());
  EXPECT_TRUE(plan.ranks[0].admit.empty());
  EXPECT_EQ(Slices(plan)[a].first_pos, before.first_pos);
  EXPECT_EQ(Slices(plan)[a].count, before.count);
  EXPECT_TRUE(Slices(plan)[a].new_blocks.empty());  // the rank knows them
  EXPECT_TRUE(Slices(plan)[a].sample);
}

TEST(Scheduler, SequencesOfALostRankAreComputedAnewElsewhere) {
  SchedulerOptions o = Options();
  o.num_ranks = 2;
  Scheduler s(o);
  const SequenceId a = s.Add(MakeRequest(40), 0, 0);
  const SequenceId b = s.Add(MakeRequest(30, 60), 0, 0);
  Step(s);
  Step(s);
  const int lost = s.Find(a)->rank;
  ASSERT_NE(lost, s.Find(b)->rank);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  s.AbandonStep();
  s.LoseRank(lost);
  EXPECT_EQ(s.num_running(), 1);
  EXPECT_EQ(s.replays(), 1u);
  EXPECT_EQ(s.rank_blocks(lost).used() + s.rank_blocks(lost).cached(), 0);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_TRUE(plan.ranks[lost].slices.empty());
  EXPECT_TRUE(plan.ranks[lost].admit.empty());
  ASSERT_EQ(plan.ranks[1 - lost].admit.size(), 1u);
  EXPECT_EQ(plan.ranks[1 - lost].admit[0].tokens.size(), 42u);
  EXPECT_EQ(Slices(plan)[a].first_pos, 0);
  EXPECT_EQ(Slices(plan)[a].count, 40);
  EXPECT_EQ(Slices(plan)[b].count, 1);  // goes on where it was
  Finish(s, plan);
  s.GainRank(lost);
  const SequenceId c = s.Add(MakeRequest(20, 90), 0, 0);
  ASSERT_TRUE(s.Plan(plan));
  EXPECT_EQ(s.Find(c)->rank, lost);
}

TEST(Scheduler, ForgottenRanksStartEmpty) {
  Scheduler s(Options());
  const SequenceId a = s.Add(MakeRequest(40), 0, 0);
  Step(s);
  Step(s);
  s.ForgetRanks();
  EXPECT_EQ(s.num_running(), 0);
  EXPECT_EQ(s.rank_blocks(0).used() + s.rank_blocks(0).cached(), 0);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  ASSERT_EQ(plan.ranks[0].admit.size(), 1u);
  EXPECT_EQ(plan.ranks[0].admit[0].tokens.size(), 42u);
  EXPECT_EQ(Slices(plan)[a].count, 40);
}

TEST(Scheduler, RemovalWhileAStepRuns) {
  Scheduler s(Options());
  const SequenceId a = s.Add(MakeRequest(40), 0, 0);
  const SequenceId b = s.Add(MakeRequest(10, 60), 0, 0);
  StepPlan plan;
  ASSERT_TRUE(s.Plan(plan));
  s.Remove(a);
  s.Remove(a);
  Finish(s, plan);
  EXPECT_EQ(s.Find(b)->num_computed, 10);
  EXPECT_EQ(s.rank_blocks(0).used(), 1);
  s.Remove(b);
  EXPECT_FALSE(s.Plan(plan));
}

}  // namespace
}  // namespace moe
