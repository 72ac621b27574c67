// Scheduler: which sequences compute how many tokens in the next step, on which rank, in which blocks. Single-threaded;
// its only inputs are the calls below, so a run can be repeated exactly.
//
// A step is filled in this order (continuous batching with chunked prefill):
//   1. every running sequence that decodes: one token each;
//   2. running sequences that still compute known tokens (their prompt, or all tokens after a preemption), in chunks;
//   3. waiting sequences are admitted, as far as sequences, tokens and blocks allow, and compute their first chunk;
//   4. with speculative decoding, sequences of part 1 get guesses into what is left of tokens and free blocks, as far
//   as
//      that is expected to pay (scheduler's fourth part, drafting.cc).
// Within each: higher priority first, then earlier arrival. Beside decoding sequences parts 2 and 3 together stay
// within prefill_chunk_tokens, so a long prompt delays nobody by more than one chunk, and within what itl_slowdown
// leaves them.
//
// Blocks are reserved as a slice needs them. When a rank has none left, the last sequence in that order on this rank is
// preempted: its blocks are released, its rank forgets it, and it waits in its old place with all its tokens. The
// requesting sequence itself is never preempted for its own sake: if it is the last one, it pauses and keeps its
// blocks. The first sequence of a rank can therefore always take every block there, and finishes: no deadlock, no
// livelock. Nothing is admitted in a step that preempts or pauses.
//
// A sequence is admitted when all its known tokens and one more fit beside what running ones still need for theirs. The
// first waiting sequence that does not fit holds back the others (they would starve it otherwise).
#ifndef MOE_ENGINE_SCHEDULE_SCHEDULER_H_
#define MOE_ENGINE_SCHEDULE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/schedule/prefill_pacer.h"
#include "engine/schedule/rank_blocks.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/step_cost.h"
#include "engine/schedule/step_plan.h"

namespace moe {

struct SpeculationOptions {
  int64_t tokens = 0;  // guesses of one sequence and step at most; 0: off
  int64_t ngram_min = 2;
  int64_t ngram_max = 4;
  // The model keeps more of a sequence than K/V, so a slice with a false guess is taken back as a whole: at most
  // slices_per_rank with guesses in a step.
  bool rolls_back = false;
  int64_t slices_per_rank = 0;
  StepCost cost;
};

struct SchedulerOptions {
  int num_ranks = 1;
  int64_t blocks_per_rank = 0;            // of kKvBlockTokens; hold at least max_model_len tokens
  int64_t max_model_len = 0;              // prompt + generated tokens of one sequence
  int64_t max_num_seqs = 256;             // running at once, all ranks together
  int64_t max_num_batched_tokens = 2048;  // rows of one step, all ranks together
  int64_t prefill_chunk_tokens = 512;     // of them not decoding, when others decode
  // A prompt slice ends at a multiple of this or at prompt_len (N6, for mixers that scan in chunks).
  int64_t prompt_multiple = 1;
  bool prefix_cache = true;             // with recurrent state only where there are snapshot slots
  int64_t state_slots_per_rank = 0;     // 0: the model has no recurrent state
  int64_t snapshot_slots_per_rank = 0;  // saved recurrent states, for prefix reuse
  int64_t long_context_border = 0;      // ModelSpec::LongContextBorder; 0: all sequences are alike
  double itl_slowdown = 0;              // of decoding sequences by prompts beside them (prefill_pacer.h); 0: no limit
  SpeculationOptions speculation;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues one choice. `leader`: the sequence of choice 0 of the same request, 0 for that one itself. Sequences of one
  // request are added together, in the order of their choices. REQUIRES: CheckRequest was OK.
  SequenceId Add(std::shared_ptr<const Request> request, uint32_t choice, SequenceId leader);
  // Forgets a sequence in any stage and frees what it holds. Unknown ids are ignored. Not while a step runs.
  void Remove(SequenceId id);

  // How long the planned step took, before Commit: what paces prompts beside sequences that decode.
  void ObserveStep(double seconds);
  // Fills the next step; false when there is nothing to compute. Every plan that returned true is followed by Commit or
  // Abandon.
  bool Plan(StepPlan& plan);
  // The step's sampler agreed with so many guesses of a planned slice. Before Commit.
  void Accept(SequenceId id, int64_t guesses);
  // The step's results are in: moves every planned sequence that is still there forward, accepted guesses included,
  // and publishes full blocks. The last token that a slice drew is appended afterwards.
  void Commit();
  // The step failed: no sequence has advanced, and the ranks that are left hold what they held before it.
  void AbandonStep();

  // Ranks come and go between steps (after Commit or AbandonStep). All are there at first.
  // What the rank held is lost: its sequences wait in their old places, to be computed anew from their tokens.
  void LoseRank(int rank);
  // The rank is there (again), empty.
  void GainRank(int rank);
  bool HasRank(int rank) const { return ranks_[rank].usable; }
  // As if every rank had been lost and had come back.
  void ForgetRanks();

  // REQUIRES: all known tokens of the sequence are computed.
  void AppendToken(SequenceId id, int32_t token);
  void PromptLogprobsDone(SequenceId id);

  const Sequence* Find(SequenceId id) const;
  // Sequences whose first admission was in the last plan.
  const std::vector<SequenceId>& started() const { return started_; }

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  const std::vector<Sequence*>& running() const { return running_; }
  const RankBlocks& rank_blocks(int rank) const { return ranks_[rank].blocks; }
  int64_t free_state_slots(int rank) const { return static_cast<int64_t>(ranks_[rank].free_slots.size()); }
  const SchedulerOptions& options() const { return options_; }

  // Drops cached prefixes that no sequence uses; returns the number of blocks freed.
  int64_t FlushPrefixCache();

  // Counters; they only grow.
  uint64_t preemptions() const { return preemptions_; }
  uint64_t replays() const { return replays_; }  // sequences computed anew because their rank was lost
  uint64_t prefix_queries() const { return prefix_queries_; }
  uint64_t prefix_hits() const { return prefix_hits_; }
  uint64_t guesses_proposed() const { return guesses_proposed_; }  // that steps computed
  uint64_t guesses_accepted() const { return guesses_accepted_; }

 private:
  struct Rank {
    Rank(int64_t num_blocks, int64_t snapshot_slots);
    bool usable = true;
    RankBlocks blocks;
    std::vector<int32_t> free_slots;
    std::vector<SequenceId> drop;  // for the next plan
    int64_t running = 0;
    int64_t drafted = 0;  // slices with guesses in the step being planned
    size_t emitted = 0;   // slices that are in its plan
    int64_t promised =
        0;  // blocks that running sequences still need for their known tokens and one more; admission only
  };
  struct Placement {
    int rank = -1;  // -1: fits nowhere now
    PrefixMatch match;
  };

  int64_t BlocksFor(int64_t tokens) const;
  bool UsesCache(const Sequence& s) const;
  // Where the last snapshot of a prompt is taken, for models with recurrent state: behind the last full block before
  // the prompt's last token, from where a longer prompt can go on. A slice ends there. 0: nowhere.
  int64_t SnapshotBorder(const Sequence& s) const;
  // Reserves a snapshot slot if the planned slice ends behind a full block of the prompt.
  void PlanSnapshot(Sequence& s);
  // Publishes the full blocks that are computed, and the snapshot behind the last one.
  void Publish(Sequence& s);
  // How many of the next `limit` tokens one slice may take.
  int64_t SliceLength(const Sequence& s, int64_t limit) const;
  // Reserves blocks for a slice of up to `limit` tokens, preempting others if it must; returns its length.
  int64_t PlanSlice(Sequence& s, int64_t limit);
  bool PreemptAfter(const Sequence& s);
  void ReleaseAll(Sequence& s, bool tell_rank);
  Rank EmptyRank() const;
  void Admit(int64_t budget);
  bool WaitsForLeader(const Sequence& s) const;
  Placement Place(const Sequence& s) const;
  void Start(Sequence& s, Placement placement);
  int64_t PrefillAllowance() const;
  void PlanDrafts();
  // Guesses for a sequence that decodes, at most `limit`; 0: none.
  std::span<const int32_t> GuessFor(Sequence& s, int64_t limit);
  // How many guesses a sequence may have beside its own limits: tokens of the request, blocks.
  int64_t DraftLimit(const Sequence& s) const;
  // Moves a sequence past a slice with guesses.
  void CommitDraft(Sequence& s);
  void Emit(StepPlan& plan);

  SchedulerOptions options_;
  int64_t running_limit_;
  std::vector<Rank> ranks_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;  // in SequenceOrder
  std::set<Sequence*, SequenceOrder> waiting_;
  std::vector<SequenceId> started_;
  PrefillPacer pacer_;
  int64_t step_decoding_ = 0;  // of the last plan: rows of sequences that decode, and prompt tokens beside them
  int64_t step_prefill_ = 0;
  std::vector<SequenceId> planned_;  // slices of the step that runs
  int64_t planned_tokens_ = 0;       // of the step being planned
  bool short_of_blocks_ = false;     // this step preempted or paused somebody
  SequenceId next_id_ = 1;
  uint64_t step_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t replays_ = 0;
  uint64_t prefix_queries_ = 0;
  uint64_t prefix_hits_ = 0;
  uint64_t guesses_proposed_ = 0;
  uint64_t guesses_accepted_ = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_SCHEDULER_H_
