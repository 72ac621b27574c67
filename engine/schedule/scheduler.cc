#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/device/ops.h"
#include "engine/schedule/check_request.h"
#include "parallel/base/check.h"

namespace moe {

Scheduler::Rank::Rank(int64_t num_blocks, int64_t snapshot_slots)
    : blocks(num_blocks, kKvBlockTokens, snapshot_slots) {}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), pacer_(options.itl_slowdown, std::max(options.prefill_chunk_tokens, options.prompt_multiple)) {
  MOE_CHECK(options_.num_ranks > 0 && options_.max_num_seqs > 0 && options_.max_model_len > 0);
  MOE_CHECK(options_.blocks_per_rank * kKvBlockTokens >= options_.max_model_len)
      << options_.blocks_per_rank << " blocks a rank cannot hold " << options_.max_model_len << " tokens";
  MOE_CHECK(options_.prompt_multiple > 0 && options_.max_num_batched_tokens >= options_.prompt_multiple)
      << "a step of " << options_.max_num_batched_tokens << " tokens is smaller than a chunk";
  if (options_.state_slots_per_rank > 0 && options_.snapshot_slots_per_rank == 0) options_.prefix_cache = false;
  if (options_.state_slots_per_rank == 0 || !options_.prefix_cache) options_.snapshot_slots_per_rank = 0;
  options_.prefill_chunk_tokens = std::max(options_.prefill_chunk_tokens, options_.prompt_multiple);
  // Room for every decoding sequence and at least one chunk, so that nobody starves.
  running_limit_ = std::min(options_.max_num_seqs, options_.max_num_batched_tokens - options_.prompt_multiple + 1);
  for (int r = 0; r < options_.num_ranks; ++r) ranks_.push_back(EmptyRank());
}

Scheduler::Rank Scheduler::EmptyRank() const {
  Rank rank(options_.blocks_per_rank, options_.snapshot_slots_per_rank);
  for (int64_t s = options_.state_slots_per_rank - 1; s >= 0; --s) rank.free_slots.push_back(static_cast<int32_t>(s));
  return rank;
}

int64_t Scheduler::BlocksFor(int64_t tokens) const {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

bool Scheduler::UsesCache(const Sequence& s) const {
  // What they report about each prompt token has to be computed.
  return options_.prefix_cache && !s.wants_prompt_logprobs && !s.request->routed_experts;
}

const Sequence* Scheduler::Find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

SequenceId Scheduler::Add(std::shared_ptr<const Request> request, uint32_t choice, SequenceId leader) {
  auto s = std::make_unique<Sequence>();
  s->id = next_id_++;
  s->choice = choice;
  s->leader = leader;
  s->tokens = request->prompt;
  s->prompt_len = s->known();
  s->wants_prompt_logprobs = choice == 0 && request->prompt_logprobs.has_value();
  s->cache_salt = request->cache_salt;
  if (options_.long_context_border > 0) {
    // Of the request alone, so that neither load nor what becomes of the sequence moves it. The keys differ.
    const int64_t longest = s->prompt_len + EffectiveMaxNewTokens(*request, options_.max_model_len);
    s->long_context = longest > options_.long_context_border;
    s->cache_salt.insert(0, 1, s->long_context ? 'L' : 'S');
  }
  s->request = std::move(request);
  MOE_CHECK(s->prompt_len > 0 && s->prompt_len < options_.max_model_len) << "prompt of " << s->prompt_len;
  waiting_.insert(s.get());
  const SequenceId id = s->id;
  sequences_[id] = std::move(s);
  return id;
}

void Scheduler::ReleaseAll(Sequence& s, bool tell_rank) {
  Rank& rank = ranks_[s.rank];
  rank.blocks.Release(s.blocks);
  if (s.state_slot >= 0) rank.free_slots.push_back(s.state_slot);
  if (tell_rank && s.announced) rank.drop.push_back(s.id);
  --rank.running;
  s.rank = -1;
  s.state_slot = -1;
  s.blocks.clear();
  s.sent_blocks = 0;
  s.published_blocks = 0;
  s.last_entry = PrefixIndex::kRoot;
  s.announced = false;
  s.num_computed = 0;
  planned_tokens_ -= s.planned;
  s.planned = 0;
  s.draft.clear();
  s.accepted = 0;
  s.replay = 0;
  s.restore_snapshot = -1;
  if (s.save_snapshot >= 0) rank.blocks.snapshots().Cancel(s.save_snapshot);
  s.save_snapshot = -1;
}

void Scheduler::Remove(SequenceId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  Sequence& s = *it->second;
  if (s.running()) {
    ReleaseAll(s, true);
    running_.erase(std::lower_bound(running_.begin(), running_.end(), &s, SequenceOrder()));
  } else {
    waiting_.erase(&s);
  }
  sequences_.erase(it);
}

bool Scheduler::PreemptAfter(const Sequence& s) {
  for (size_t i = running_.size(); i-- > 0;) {
    Sequence* victim = running_[i];
    if (victim == &s) return false;
    if (victim->rank != s.rank) continue;
    ReleaseAll(*victim, true);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    waiting_.insert(victim);
    ++preemptions_;
    short_of_blocks_ = true;
    return true;
  }
  return false;
}

int64_t Scheduler::SnapshotBorder(const Sequence& s) const {
  if (options_.snapshot_slots_per_rank == 0) return 0;
  const int64_t unit = std::max<int64_t>(1, std::lcm(kKvBlockTokens, options_.prompt_multiple));
  return (s.prompt_len - 1) / unit * unit;
}

void Scheduler::PlanSnapshot(Sequence& s) {
  const int64_t end = s.num_computed + s.planned;
  if (options_.snapshot_slots_per_rank == 0 || end > s.prompt_len || end % kKvBlockTokens != 0) return;
  s.save_snapshot = ranks_[s.rank].blocks.snapshots().Reserve();
}

void Scheduler::Publish(Sequence& s) {
  RankBlocks& blocks = ranks_[s.rank].blocks;
  const std::span<const int32_t> tokens = s.tokens;
  int32_t last_block = -1;
  while ((s.published_blocks + 1) * kKvBlockTokens <= s.num_computed) {
    const int64_t b = s.published_blocks++;
    const PrefixIndex::Hit hit =
        blocks.Publish(s.last_entry, s.cache_salt, tokens.subspan(b * kKvBlockTokens, kKvBlockTokens), s.blocks[b]);
    s.last_entry = hit.entry;
    last_block = hit.block;
  }
  if (s.save_snapshot < 0) return;
  // A slice that ends behind a full block has published it just now.
  blocks.snapshots().Attach(s.save_snapshot, last_block);
  s.save_snapshot = -1;
}

int64_t Scheduler::SliceLength(const Sequence& s, int64_t limit) const {
  int64_t end = std::min(s.num_computed + std::max<int64_t>(limit, 0), s.known());
  if (s.num_computed < s.prompt_len) {
    end = std::min(end, s.prompt_len);
    if (const int64_t border = SnapshotBorder(s); s.num_computed < border) end = std::min(end, border);
    if (end < s.prompt_len) end = end / options_.prompt_multiple * options_.prompt_multiple;
  }
  return std::max<int64_t>(end - s.num_computed, 0);
}

int64_t Scheduler::PlanSlice(Sequence& s, int64_t limit) {
  if (SliceLength(s, limit) == 0) return 0;
  RankBlocks& blocks = ranks_[s.rank].blocks;
  while (true) {
    const int64_t held = static_cast<int64_t>(s.blocks.size());
    const int64_t room = (held + blocks.available()) * kKvBlockTokens - s.num_computed;
    if (const int64_t count = SliceLength(s, std::min(limit, room)); count > 0) {
      for (int64_t b = held; b < BlocksFor(s.num_computed + count); ++b) s.blocks.push_back(blocks.Allocate());
      s.planned = count;
      planned_tokens_ += count;
      return count;
    }
    if (!PreemptAfter(s)) {
      short_of_blocks_ = true;
      return 0;
    }
  }
}

int64_t Scheduler::PrefillAllowance() const {
  int64_t decoding = 0;
  for (const Sequence* s : running_) decoding += s->planned > 0 ? 1 : 0;  // only those are planned yet
  const auto running = static_cast<int64_t>(running_.size());
  const int64_t admissible =
      std::min(static_cast<int64_t>(waiting_.size()), std::max<int64_t>(0, options_.max_num_seqs - running));
  return std::max(pacer_.Allowance(decoding, running - decoding + admissible), options_.prompt_multiple);
}

void Scheduler::ObserveStep(double seconds) {
  pacer_.Observe(step_decoding_, step_prefill_, seconds);
}

bool Scheduler::Plan(StepPlan& plan) {
  MOE_CHECK(planned_.empty()) << "the last step is neither committed nor abandoned";
  started_.clear();
  planned_tokens_ = 0;
  short_of_blocks_ = false;

  // Tokens beyond one a decoding sequence and one chunk: replays must not keep prompts waiting.
  int64_t spare = options_.max_num_batched_tokens - options_.prompt_multiple;
  for (const Sequence* s : running_) spare -= s->decoding() ? 1 : 0;
  // Preemption shortens running_ only behind the sequence it serves, so the index stays right.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    if (!s.decoding()) continue;
    const int64_t count = PlanSlice(s, 1 + std::clamp<int64_t>(spare, 0, s.replay));
    spare -= std::max<int64_t>(count - 1, 0);
  }
  int64_t budget = options_.max_num_batched_tokens - planned_tokens_;
  if (planned_tokens_ > 0) budget = std::min(budget, PrefillAllowance());
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    if (running_[i]->planned == 0 && !running_[i]->decoding()) budget -= PlanSlice(*running_[i], budget);
  }
  if (!short_of_blocks_) Admit(budget);
  if (!short_of_blocks_ && options_.speculation.tokens > 0) PlanDrafts();
  step_decoding_ = 0;
  step_prefill_ = 0;
  for (const Sequence* s : running_) (s->decoding() ? step_decoding_ : step_prefill_) += s->planned;
  if (planned_tokens_ == 0) {
    MOE_CHECK(sequences_.empty()) << running_.size() << " running and " << waiting_.size()
                                  << " waiting sequences, but nothing can be computed";
    return false;
  }
  Emit(plan);
  return true;
}

void Scheduler::Emit(StepPlan& plan) {
  plan.step = ++step_;
  plan.ranks.resize(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    plan.ranks[r].drop.clear();
    plan.ranks[r].drop.swap(ranks_[r].drop);
    plan.ranks[r].admit.clear();
    ranks_[r].emitted = 0;
  }
  for (Sequence* s : running_) {
    if (s->planned == 0) continue;
    RankPlan& rank = plan.ranks[s->rank];
    const Request& request = *s->request;
    if (!s->announced) {
      SequenceInit& init = rank.admit.emplace_back();
      init.id = s->id;
      init.prompt_len = s->prompt_len;
      init.tokens = s->tokens;
      init.choice = s->choice;
      init.sampling = request.sampling;
      init.min_new_tokens = request.min_new_tokens;
      init.end_ids = request.eos_token_ids;
      init.end_ids.insert(init.end_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
      init.logprobs = request.logprobs;
      if (s->wants_prompt_logprobs) init.prompt_logprobs = request.prompt_logprobs;
      init.routed_experts = request.routed_experts;
      init.state_slot = s->state_slot;
      init.state_snapshot = s->restore_snapshot;
      init.long_context = s->long_context;
      s->restore_snapshot = -1;
      s->announced = true;
    }
    // The slices of the last plan are written over, to use their memory.
    const size_t index = ranks_[s->rank].emitted++;
    if (index == rank.slices.size()) rank.slices.emplace_back();
    SlicePlan& slice = rank.slices[index];
    slice.id = s->id;
    slice.first_pos = s->num_computed;
    slice.count = s->planned;
    slice.new_blocks.assign(s->blocks.begin() + s->sent_blocks, s->blocks.end());
    PlanSnapshot(*s);
    slice.save_snapshot = s->save_snapshot;
    slice.draft = s->draft;
    slice.sample = s->num_computed + s->planned == s->known() + static_cast<int64_t>(s->draft.size());
    s->sent_blocks = static_cast<int64_t>(s->blocks.size());
    planned_.push_back(s->id);
  }
  int64_t most_rows = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    plan.ranks[r].slices.resize(ranks_[r].emitted);
    int64_t rows = 0;
    for (const SlicePlan& slice : plan.ranks[r].slices) rows += slice.count;
    most_rows = std::max(most_rows, rows);
  }
  for (RankPlan& rank : plan.ranks) rank.most_rows = most_rows;
}

void Scheduler::Commit() {
  for (SequenceId id : planned_) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) continue;  // removed while the step ran
    Sequence& s = *it->second;
    if (s.draft.empty()) {
      s.num_computed += s.planned;
      s.replay = std::max<int64_t>(s.replay - s.planned, 0);
    } else {
      CommitDraft(s);
    }
    s.planned = 0;
    if (options_.prefix_cache) Publish(s);
  }
  planned_.clear();
}

void Scheduler::AbandonStep() {
  for (SequenceId id : planned_) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) continue;
    Sequence& s = *it->second;
    s.planned = 0;
    s.draft.clear();
    s.accepted = 0;
    if (s.save_snapshot >= 0) ranks_[s.rank].blocks.snapshots().Cancel(s.save_snapshot);
    s.save_snapshot = -1;
  }
  planned_.clear();
}

void Scheduler::LoseRank(int rank) {
  MOE_CHECK(planned_.empty());
  std::erase_if(running_, [&](Sequence* s) {
    if (s->rank != rank) return false;
    ReleaseAll(*s, false);
    waiting_.insert(s);
    ++replays_;
    return true;
  });
  ranks_[rank] = EmptyRank();
  ranks_[rank].usable = false;
}

void Scheduler::GainRank(int rank) {
  ranks_[rank].usable = true;
}

void Scheduler::ForgetRanks() {
  for (int r = 0; r < options_.num_ranks; ++r) {
    const bool usable = ranks_[r].usable;
    LoseRank(r);
    ranks_[r].usable = usable;
  }
}

void Scheduler::AppendToken(SequenceId id, int32_t token) {
  Sequence& s = *sequences_.at(id);
  MOE_CHECK_EQ(s.num_computed + s.replay, s.known());
  s.tokens.push_back(token);
  if (s.drafter != nullptr) s.drafter->Observe(token);
}

void Scheduler::PromptLogprobsDone(SequenceId id) {
  sequences_.at(id)->wants_prompt_logprobs = false;
}

int64_t Scheduler::FlushPrefixCache() {
  int64_t freed = 0;
  for (Rank& rank : ranks_) freed += rank.blocks.Flush();
  return freed;
}

}  // namespace moe
