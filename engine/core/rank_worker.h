// RankWorker: one rank. It owns the rank's backend, caches and sequences and executes the RankPlans it is given; it
// decides nothing. One thread.
#ifndef MOE_ENGINE_CORE_RANK_WORKER_H_
#define MOE_ENGINE_CORE_RANK_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"
#include "engine/core/draft_rollback.h"
#include "engine/model/decoder.h"
#include "engine/sample/sampler.h"
#include "engine/schedule/step_plan.h"
#include "engine/tensor/arena.h"
#include "parallel/communicator.h"
#include "parallel/worker_pool.h"

namespace moe {

class RankWorker {
 public:
  struct Options {
    const ModelSpec* spec = nullptr;  // these three outlive the worker
    const PackedModel* weights = nullptr;
    std::span<const ExpertPlacement> placements;  // one per MoE layer
    int64_t kv_blocks = 0;
    int64_t state_slots = 0;
    int64_t state_snapshots = 0;
    int64_t rollback_slots = 0;  // slices with guesses in a step, where DraftRollback::Needed
  };
  static StatusOr<std::unique_ptr<RankWorker>> Create(const Options& options, std::unique_ptr<WorkerPool> pool,
                                                      std::unique_ptr<Backend> backend,
                                                      std::unique_ptr<Communicator> communicator);

  // Runs one step. All ranks of the group call this for the same step.
  StatusOr<RankResult> Execute(const RankPlan& plan);
  // Gives back a result of Execute: the next one uses its memory.
  void Recycle(RankResult result) { spare_ = std::move(result); }

  // Grows with every layer and every part of the logits that is computed. Any thread.
  uint64_t heartbeat() const { return heartbeat_.load(std::memory_order_relaxed); }

  // Between two steps. The communicator's members are those of before, or the sequences are forgotten.
  void SetPlacements(std::span<const ExpertPlacement> placements);
  // Joins another group (null: none), keeping caches and sequences.
  void JoinGroup(std::unique_ptr<Communicator> communicator, std::span<const ExpertPlacement> placements);
  // The step that Execute ran last, finished or not, did not happen: tokens drawn in it are forgotten, and what it
  // appended. REQUIRES: !DraftRollback::Needed(spec).
  void UndoStep();
  // As if no sequence had ever been here.
  void ForgetSequences() { sequences_.clear(); }

  // Of the steps from now on. In a group.
  void SetExchangeTimeout(std::chrono::milliseconds timeout) { communicator_->SetTimeout(timeout); }

  // Makes an exchange that this rank's peers wait in fail. Any thread.
  void Abort(const std::string& reason) { communicator_->Abort(reason); }

 private:
  struct Sequence {
    SequenceInit init;  // with the tokens generated here appended
    std::vector<int32_t> blocks;
    Sampler sampler;
  };
  // A row of the step whose logits are needed, and what for.
  struct LogitRow {
    int32_t row = 0;
    size_t slice = 0;
    int32_t prompt_token = -1;  // describe this one (the next token of the prompt); -1: none
    int32_t sample = -1;        // draw its slice's token of this number; -1: none
  };

  RankWorker(const Options& options, std::unique_ptr<WorkerPool> pool, std::unique_ptr<Backend> backend,
             std::unique_ptr<Communicator> communicator);
  void Admit(const SequenceInit& init);
  void SaveStates(const RankPlan& plan);
  // What the slices compute, in tokens_ and slices_.
  void PlanRows(const RankPlan& plan);
  // The rows in logit_rows_, and a result for every slice.
  void PlanLogits(const RankPlan& plan, RankResult& result);
  void ComputeLogits(const ForwardContext& context, const float* hidden, std::span<const LogitRow> rows,
                     const RankPlan& plan, RankResult& result);
  // Whether the guess that a row stands on came true.
  static bool Stands(const LogitRow& row, const RankPlan& plan, const RankResult& result);
  // Behind the sampler: drops guesses that were not accepted, with what they left.
  void SettleGuesses(const RankPlan& plan, RankResult& result);
  void RecordRouting(const RankPlan& plan, int64_t ordinal, const Routing& routing, RankResult& result);

  Options options_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Dispatcher> dispatcher_;
  Decoder decoder_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<StateStore> states_;
  std::optional<DraftRollback> rollback_;  // where it is needed
  Arena arena_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<std::pair<SequenceId, size_t>> undo_;  // of the last step: tokens that a sequence had before it
  std::vector<SamplerScratch> scratch_;              // one per thread
  // Of the step that runs; kept for their memory.
  std::vector<int32_t> tokens_;
  std::vector<DecodeSlice> slices_;
  std::vector<LogitRow> logit_rows_;
  std::vector<int64_t> task_begin_;  // ComputeLogits'
  std::vector<TokenInfo> described_;
  std::vector<char> used_;
  RankResult spare_;
  std::vector<int64_t> moe_experts_;  // per MoE layer: where its counts begin in expert_tokens; then the total
  int64_t max_top_k_ = 0;
  std::atomic<uint64_t> heartbeat_{0};
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_WORKER_H_
