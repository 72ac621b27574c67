#include "engine/core/rank_worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "parallel/base/check.h"

namespace moe {
namespace {

// Rows of logits that exist at once: prompt log-probabilities of a long chunk would otherwise need tokens × vocabulary.
constexpr size_t kLogitRowsAtOnce = 64;

}  // namespace

StatusOr<std::unique_ptr<RankWorker>> RankWorker::Create(const Options& options, std::unique_ptr<WorkerPool> pool,
                                                         std::unique_ptr<Backend> backend,
                                                         std::unique_ptr<Communicator> communicator) {
  std::unique_ptr<RankWorker> worker(
      new RankWorker(options, std::move(pool), std::move(backend), std::move(communicator)));
  MOE_ASSIGN_OR_RETURN(worker->kv_, KvStore::Create(*options.spec, worker->backend_->act_dtype(), options.kv_blocks));
  MOE_ASSIGN_OR_RETURN(worker->states_, StateStore::Create(*options.spec, options.state_slots,
                                                           options.state_snapshots + options.rollback_slots));
  if (DraftRollback::Needed(*options.spec)) {
    worker->rollback_.emplace(*options.spec, worker->kv_.get(), worker->states_.get(), options.state_snapshots);
  }
  return worker;
}

RankWorker::RankWorker(const Options& options, std::unique_ptr<WorkerPool> pool, std::unique_ptr<Backend> backend,
                       std::unique_ptr<Communicator> communicator)
    : options_(options),
      pool_(std::move(pool)),
      backend_(std::move(backend)),
      communicator_(std::move(communicator)),
      dispatcher_(std::make_unique<Dispatcher>(communicator_.get())),
      decoder_(options.spec, options.weights, options.placements),
      scratch_(pool_->num_threads()),
      moe_experts_{0},
      max_top_k_(options.spec->MaxTopK()) {
  for (int64_t l : options.spec->MoeLayers()) {
    moe_experts_.push_back(moe_experts_.back() + std::get<MoeSpec>(options.spec->layers[l].ffn).num_experts);
  }
}

void RankWorker::Admit(const SequenceInit& init) {
  MOE_CHECK(!sequences_.contains(init.id)) << "sequence " << init.id;
  if (init.state_snapshot >= 0) {
    states_->Restore(init.state_snapshot, init.state_slot);
  } else if (init.state_slot >= 0) {
    states_->Clear(init.state_slot);
  }
  sequences_.emplace(init.id, Sequence{init, {}, Sampler(init, options_.spec->vocab_size)});
}

void RankWorker::SetPlacements(std::span<const ExpertPlacement> placements) {
  options_.placements = placements;
  decoder_.SetPlacements(placements);
}

void RankWorker::JoinGroup(std::unique_ptr<Communicator> communicator, std::span<const ExpertPlacement> placements) {
  dispatcher_.reset();
  communicator_ = std::move(communicator);
  if (communicator_ != nullptr) dispatcher_ = std::make_unique<Dispatcher>(communicator_.get());
  SetPlacements(placements);
}

void RankWorker::UndoStep() {
  for (const auto& [id, known] : undo_) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) continue;
    Sequence& sequence = it->second;
    sequence.init.tokens.resize(known);
    sequence.sampler = Sampler(sequence.init, options_.spec->vocab_size);
  }
  undo_.clear();
}

StatusOr<RankResult> RankWorker::Execute(const RankPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  const double exchange_before = dispatcher_->exchange_seconds();
  const Dispatcher::Counters counters_before = dispatcher_->counters();
  for (SequenceId id : plan.drop) sequences_.erase(id);
  for (const SequenceInit& init : plan.admit) Admit(init);

  arena_.Reset();
  PlanRows(plan);
  RankResult result = std::exchange(spare_, {});
  result.expert_tokens.assign(moe_experts_.back(), 0);
  PlanLogits(plan, result);
  SaveStates(plan);
  const ForwardContext context{backend_.get(), dispatcher_.get(), &arena_, &heartbeat_, plan.most_rows};
  const auto record = [&](int64_t ordinal, const Routing& routing) { RecordRouting(plan, ordinal, routing, result); };
  MOE_ASSIGN_OR_RETURN(const float* hidden, decoder_.Forward(context, {.tokens = tokens_,
                                                                       .slices = slices_,
                                                                       .kv = kv_.get(),
                                                                       .states = states_.get(),
                                                                       .on_routing = std::cref(record)}));
  for (const SlicePlan& slice : plan.slices) {
    if (slice.save_snapshot >= 0) states_->Save(sequences_.at(slice.id).init.state_slot, slice.save_snapshot);
  }
  ComputeLogits(context, hidden, logit_rows_, plan, result);
  SettleGuesses(plan, result);
  const Dispatcher::Counters& counters = dispatcher_->counters();
  const auto added = [&](uint64_t Dispatcher::Counters::*count) {
    return static_cast<int64_t>(counters.*count - counters_before.*count);
  };
  result.rows_computed = added(&Dispatcher::Counters::rows_computed);
  result.exchange = {.count_bytes = added(&Dispatcher::Counters::count_bytes),
                     .dispatch_bytes = added(&Dispatcher::Counters::dispatch_bytes),
                     .combine_bytes = added(&Dispatcher::Counters::combine_bytes),
                     .rows_sent = added(&Dispatcher::Counters::rows_sent),
                     .exchanges = added(&Dispatcher::Counters::exchanges)};
  result.exchange.counts_seconds = counters.counts_seconds - counters_before.counts_seconds;
  result.exchange.dispatch_seconds = counters.dispatch_seconds - counters_before.dispatch_seconds;
  result.exchange.combine_seconds = counters.combine_seconds - counters_before.combine_seconds;
  const double exchange_seconds = dispatcher_->exchange_seconds() - exchange_before;
  result.compute_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() - exchange_seconds;
  return result;
}

void RankWorker::PlanRows(const RankPlan& plan) {
  undo_.clear();
  tokens_.clear();
  slices_.clear();
  for (const SlicePlan& slice : plan.slices) {
    Sequence& sequence = sequences_.at(slice.id);
    sequence.blocks.insert(sequence.blocks.end(), slice.new_blocks.begin(), slice.new_blocks.end());
    std::vector<int32_t>& known = sequence.init.tokens;
    undo_.emplace_back(slice.id, known.size());
    known.insert(known.end(), slice.draft.begin(), slice.draft.end());  // until SettleGuesses
    MOE_CHECK(slice.first_pos + slice.count <= static_cast<int64_t>(known.size()))
        << "slice [" << slice.first_pos << ", +" << slice.count << ") of " << known.size() << " tokens";
    tokens_.insert(tokens_.end(), known.begin() + slice.first_pos, known.begin() + slice.first_pos + slice.count);
    slices_.push_back(
        {slice.first_pos, slice.count, sequence.blocks, sequence.init.state_slot, known, sequence.init.long_context});
  }
}

void RankWorker::SaveStates(const RankPlan& plan) {
  if (!rollback_) return;
  rollback_->Begin();
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const SlicePlan& slice = plan.slices[s];
    if (slice.draft.empty()) continue;
    const Sequence& sequence = sequences_.at(slice.id);
    rollback_->Save(s, sequence.init.state_slot, sequence.blocks, slice.first_pos, slice.count);
  }
}

void RankWorker::SettleGuesses(const RankPlan& plan, RankResult& result) {
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const SlicePlan& slice = plan.slices[s];
    SliceResult& out = result.slices[s];
    if (!slice.sample) continue;
    std::vector<int32_t>& tokens = sequences_.at(slice.id).init.tokens;
    const auto drafted = static_cast<int64_t>(slice.draft.size());
    tokens.resize(tokens.size() - static_cast<size_t>(drafted - out.accepted()));
    tokens.push_back(out.tokens.back().id);
    if (drafted == out.accepted()) continue;
    out.expert_ids.resize(out.expert_ids.size() / static_cast<size_t>(slice.count) *
                          static_cast<size_t>(KeptRows(slice, out)));
    if (rollback_) rollback_->Restore(s);
  }
}

bool RankWorker::Stands(const LogitRow& row, const RankPlan& plan, const RankResult& result) {
  const std::vector<TokenInfo>& drawn = result.slices[row.slice].tokens;
  const auto number = static_cast<size_t>(row.sample);
  if (drawn.size() != number) return false;  // an earlier one did not
  return number == 0 || drawn.back().id == plan.slices[row.slice].draft[number - 1];
}

void RankWorker::PlanLogits(const RankPlan& plan, RankResult& result) {
  logit_rows_.clear();
  result.slices.resize(plan.slices.size());
  const auto moe_layers = static_cast<int64_t>(moe_experts_.size()) - 1;
  int64_t first_row = 0;
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const SlicePlan& slice = plan.slices[s];
    const SequenceInit& init = sequences_.at(slice.id).init;
    SliceResult& out = result.slices[s];
    out.Reset(slice.id);
    if (init.routed_experts) out.expert_ids.assign(slice.count * moe_layers * max_top_k_, -1);
    // The row of position p tells about the token at p + 1; nothing precedes position 0.
    if (init.prompt_logprobs && slice.first_pos == 0) out.prompt_tokens.emplace_back();
    for (int64_t i = 0; i < slice.count; ++i) {
      LogitRow row{static_cast<int32_t>(first_row + i), s};
      const int64_t next = slice.first_pos + i + 1;
      if (init.prompt_logprobs && next < init.prompt_len) row.prompt_token = init.tokens[next];
      // The last known token's row and those of the guesses.
      const int64_t number = i + 1 + static_cast<int64_t>(slice.draft.size()) - slice.count;
      if (slice.sample && number >= 0) row.sample = static_cast<int32_t>(number);
      if (row.sample >= 0 || row.prompt_token >= 0) logit_rows_.push_back(row);
    }
    first_row += slice.count;
  }
}

void RankWorker::ComputeLogits(const ForwardContext& context, const float* hidden, std::span<const LogitRow> rows,
                               const RankPlan& plan, RankResult& result) {
  const int64_t vocab = options_.spec->vocab_size;
  for (size_t begin = 0; begin < rows.size(); begin += kLogitRowsAtOnce) {
    const Arena::Scope scope(&arena_);
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    const std::span<const LogitRow> part = rows.subspan(begin, std::min(kLogitRowsAtOnce, rows.size() - begin));
    const auto count = static_cast<int64_t>(part.size());
    auto* indices = arena_.Allocate<int32_t>(count);
    auto* logits = arena_.Allocate<float>(count * vocab);
    auto* argmax = arena_.Allocate<int32_t>(count);
    auto* max = arena_.Allocate<float>(count);
    auto* log_sum_exp = arena_.Allocate<float>(count);
    for (int64_t r = 0; r < count; ++r) indices[r] = part[r].row;
    decoder_.Logits(context, hidden, {indices, part.size()}, logits);
    backend_->LogitStats({.logits = logits,
                          .rows = count,
                          .vocab = vocab,
                          .stride = vocab,
                          .argmax = argmax,
                          .max = max,
                          .log_sum_exp = log_sum_exp});
    // Only samples change a sequence's sampler, and those of one slice follow each other. Otherwise rows are
    // independent, so threads may take the tasks in any order.
    task_begin_.clear();
    for (int64_t r = 0; r < count; ++r) {
      const bool follows = r > 0 && part[r].sample > 0 && part[r - 1].slice == part[r].slice;
      if (!follows) task_begin_.push_back(r);
    }
    const auto tasks = static_cast<int64_t>(task_begin_.size());
    task_begin_.push_back(count);
    described_.resize(part.size());
    used_.assign(part.size(), 0);
    const int threads = pool_->num_threads();
    const auto run_task = [&](int64_t task, int thread) {
      for (int64_t r = task_begin_[task]; r < task_begin_[task + 1]; ++r) {
        const LogitRow& row = part[r];
        const std::span<const float> values(logits + r * vocab, static_cast<size_t>(vocab));
        Sequence& sequence = sequences_.at(plan.slices[row.slice].id);
        if (row.prompt_token >= 0) {
          used_[r] = 1;
          described_[r] = Sampler::Describe(values, log_sum_exp[r], row.prompt_token, *sequence.init.prompt_logprobs,
                                            scratch_[thread]);
        }
        if (row.sample >= 0 && Stands(row, plan, result)) {
          used_[r] = 1;
          result.slices[row.slice].tokens.push_back(
              sequence.sampler.Next(values, argmax[r], max[r], log_sum_exp[r], scratch_[thread]));
        }
      }
    };
    pool_->Run([&](int thread) {
      for (int64_t task = thread; task < tasks; task += threads) run_task(task, thread);
    });
    for (int64_t r = 0; r < count; ++r) {
      SliceResult& out = result.slices[part[r].slice];
      if (part[r].prompt_token >= 0) out.prompt_tokens.push_back(std::move(described_[r]));
      // A NaN anywhere in the row makes the sum one.
      if (used_[r] != 0 && !std::isfinite(log_sum_exp[r])) out.not_finite = true;
    }
  }
}

void RankWorker::RecordRouting(const RankPlan& plan, int64_t ordinal, const Routing& routing, RankResult& result) {
  int64_t* counts = result.expert_tokens.data() + moe_experts_[ordinal];
  // Identity experts (ids from num_experts on) are nobody's load.
  const int64_t num_experts = moe_experts_[ordinal + 1] - moe_experts_[ordinal];
  for (int64_t i = 0; i < routing.rows * routing.top_k; ++i) {
    if (routing.ids[i] < num_experts) ++counts[routing.ids[i]];
  }
  const auto moe_layers = static_cast<int64_t>(moe_experts_.size()) - 1;
  int64_t row = 0;
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    std::vector<int32_t>& ids = result.slices[s].expert_ids;
    for (int64_t i = 0; !ids.empty() && i < plan.slices[s].count; ++i) {
      std::copy_n(routing.ids + (row + i) * routing.top_k, routing.top_k,
                  ids.begin() + (i * moe_layers + ordinal) * max_top_k_);
    }
    row += plan.slices[s].count;
  }
}

}  // namespace moe
