#include "tests/engine/core/toy_ranks.h"

#include <algorithm>
#include <set>

#include "engine/device/ops.h"
#include "engine/schedule/check_request.h"

namespace moe::toy {

uint64_t Hash(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0xff51afd7ed558ccdull;
  h ^= h >> 32;
  return h * 0xc4ceb9fe1a85ec53ull + 1;
}

uint64_t PrefixHash(const std::vector<int32_t>& tokens, int64_t count) {
  uint64_t h = 7;
  for (int64_t i = 0; i < count; ++i) h = Hash(h, static_cast<uint64_t>(tokens[i]));
  return h;
}

namespace {

constexpr uint64_t kGarbage = 0xdeadbeefdeadbeefull;  // no hash of tokens, as far as anybody will see

// Behind tokens[0, count), whose hash is `prefix`.
int32_t TokenFor(const std::vector<int32_t>& tokens, int64_t count, uint64_t prefix, uint64_t seed, uint32_t choice) {
  const uint64_t random = Hash(Hash(prefix, seed), choice) >> 20;
  const int64_t period = 1 + static_cast<int64_t>(seed / 3 % 9);
  if (seed % 3 == 0 && count > period && random / kVocab % 8 != 0) return tokens[count - period];
  return static_cast<int32_t>(random % kVocab);
}

float LogprobFor(uint64_t prefix) {
  return -static_cast<float>(prefix >> 44);
}

void ExpertsFor(uint64_t prefix, std::vector<int32_t>& out) {
  for (int64_t i = 0; i < kLayers * kTopK; ++i) out.push_back(static_cast<int32_t>(Hash(prefix, 1000 + i) % kExperts));
}

}  // namespace

int32_t NextToken(const std::vector<int32_t>& tokens, uint64_t seed, uint32_t choice) {
  const auto count = static_cast<int64_t>(tokens.size());
  return TokenFor(tokens, count, PrefixHash(tokens, count), seed, choice);
}

float PromptLogprob(const std::vector<int32_t>& tokens, int64_t position) {
  return LogprobFor(PrefixHash(tokens, position));
}

std::vector<int32_t> Experts(const std::vector<int32_t>& tokens, int64_t position) {
  std::vector<int32_t> out;
  ExpertsFor(PrefixHash(tokens, position + 1), out);
  return out;
}

Undisturbed RunAlone(const Request& request, uint32_t choice, int64_t max_model_len) {
  Undisturbed out;
  std::vector<int32_t> tokens = request.prompt;
  uint64_t hash = PrefixHash(tokens, static_cast<int64_t>(tokens.size()));
  const int64_t limit = EffectiveMaxNewTokens(request, max_model_len);
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  while (out.finish == FinishReason::kNone) {
    const int32_t token = TokenFor(tokens, static_cast<int64_t>(tokens.size()), hash, request.sampling.seed, choice);
    out.tokens.push_back(token);
    tokens.push_back(token);
    hash = Hash(hash, static_cast<uint64_t>(token));
    const auto n = static_cast<int64_t>(out.tokens.size());
    if (n > request.min_new_tokens && has(request.eos_token_ids, token)) {
      out.finish = FinishReason::kEos;
    } else if (n > request.min_new_tokens && has(request.stop_token_ids, token)) {
      out.finish = FinishReason::kStop;
    } else if (n >= limit) {
      out.finish = FinishReason::kLength;
    }
  }
  return out;
}

ToyRank::ToyRank(const SchedulerOptions& options, std::vector<std::string>* mistakes)
    : options_(options), mistakes_(mistakes) {
  cache_.assign(options.blocks_per_rank, std::vector<uint64_t>(kKvBlockTokens));
  states_.resize(options.state_slots_per_rank);
  snapshots_.resize(options.snapshot_slots_per_rank);
}

void ToyRank::Mistake(const std::string& what) const {
  if (mistakes_->size() < 10) mistakes_->push_back(what);
}

ToyRank::Rows ToyRank::Begin(const RankPlan& plan) {
  for (SequenceId id : plan.drop) {
    if (known_.erase(id) != 1) Mistake("dropped twice or never known");
  }
  for (const SequenceInit& init : plan.admit) {
    if (!known_.emplace(init.id, Known{init}).second) Mistake("admitted twice");
    if (init.state_slot >= 0) {
      states_[init.state_slot] = init.state_snapshot >= 0 ? snapshots_[init.state_snapshot] : State{};
    }
  }
  std::set<int32_t> slots;
  for (const auto& [id, s] : known_) {
    if (s.init.state_slot >= 0 && !slots.insert(s.init.state_slot).second) Mistake("a state slot has two owners");
  }
  int64_t with_guesses = 0;
  for (const SlicePlan& slice : plan.slices) with_guesses += slice.draft.empty() ? 0 : 1;
  if (options_.speculation.rolls_back && with_guesses > options_.speculation.slices_per_rank) {
    Mistake("more slices with guesses than states can be saved");
  }
  Rows rows;
  undo_.clear();
  std::set<SequenceId> seen;
  for (const SlicePlan& slice : plan.slices) {
    if (!seen.insert(slice.id).second) Mistake("two slices of one sequence");
    const auto it = known_.find(slice.id);
    if (it == known_.end()) {
      Mistake(Cat("slice of unknown sequence ", slice.id));
      continue;
    }
    Known& s = it->second;
    // One that comes (back) in this step and finds all but its last token cached was not running: nobody reads it
    // now.
    const auto drafted = static_cast<int64_t>(slice.draft.size());
    const bool decodes =
        !s.fresh && ((slice.count - drafted == 1 && slice.sample) || s.replays) && slice.first_pos >= s.init.prompt_len;
    (decodes ? rows.decoding : rows.others) += slice.count;

    undo_.push_back({slice.id, s.init.tokens.size(), s.computed, s.fresh, s.replays});
    s.init.tokens.insert(s.init.tokens.end(), slice.draft.begin(), slice.draft.end());
    s.blocks.insert(s.blocks.end(), slice.new_blocks.begin(), slice.new_blocks.end());
    const int64_t end = slice.first_pos + slice.count;
    for (int64_t p = slice.first_pos; p < end && p / kKvBlockTokens < static_cast<int64_t>(s.blocks.size()); ++p) {
      cache_[s.blocks[p / kKvBlockTokens]][p % kKvBlockTokens] = kGarbage;
    }
  }
  return rows;
}

RankResult ToyRank::Finish(const RankPlan& plan) {
  RankResult out;
  for (const SlicePlan& slice : plan.slices) out.slices.push_back(RunSlice(slice));
  out.expert_tokens.assign(kLayers * kExperts, 1);
  out.rows_computed = kLayers * kExperts;
  return out;
}

void ToyRank::Undo() {
  for (const Before& before : undo_) {
    const auto it = known_.find(before.id);
    if (it == known_.end()) continue;
    Known& s = it->second;
    s.init.tokens.resize(before.tokens);
    s.computed = before.computed;
    s.fresh = before.fresh;
    s.replays = before.replays;
  }
  undo_.clear();
}

void ToyRank::Forget() {
  known_.clear();
  undo_.clear();
  for (std::vector<uint64_t>& block : cache_) std::fill(block.begin(), block.end(), kGarbage);
  std::fill(states_.begin(), states_.end(), State{kGarbage, -1});
  std::fill(snapshots_.begin(), snapshots_.end(), State{kGarbage, -1});
}

SliceResult ToyRank::RunSlice(const SlicePlan& slice) {
  SliceResult result;
  result.id = slice.id;
  const auto it = known_.find(slice.id);
  if (it == known_.end()) return result;  // Begin has said so
  Known& s = it->second;
  SequenceInit& init = s.init;
  const auto drafted = static_cast<int64_t>(slice.draft.size());
  const auto known = static_cast<int64_t>(init.tokens.size());
  const int64_t end = slice.first_pos + slice.count;
  if (slice.count - drafted < 1) Mistake("empty slice");
  if (drafted > 0 && slice.first_pos < init.prompt_len) Mistake("guesses behind a prompt slice");
  if (drafted > 0 && s.replays) Mistake("guesses in a replay");
  if (drafted > options_.speculation.tokens) Mistake("more guesses than allowed");
  if (slice.first_pos < init.prompt_len && end > init.prompt_len) Mistake("slice straddles prompt_len");
  if (end < init.prompt_len && end % options_.prompt_multiple != 0) Mistake("prompt slice ends inside a chunk");
  if (!s.fresh && slice.first_pos != s.computed) Mistake("slice does not go on where the last one ended");
  if (s.fresh && slice.first_pos % kKvBlockTokens != 0) Mistake("cached prefix ends inside a block");
  if (slice.first_pos > 0 && s.fresh && (init.prompt_logprobs || init.routed_experts))
    Mistake("cached what is reported");
  if (end > known) Mistake("slice beyond the known tokens");
  if (slice.sample != (end == known)) Mistake("sample flag is wrong");
  if (static_cast<int64_t>(s.blocks.size()) * kKvBlockTokens < end) {
    Mistake("block table too short");
    return result;
  }
  s.fresh = false;

  uint64_t hash = 7;
  State* state = init.state_slot >= 0 ? &states_[init.state_slot] : nullptr;
  const State before = state != nullptr ? *state : State{};
  const bool rolls_back = options_.speculation.rolls_back;
  int64_t kept = end - drafted;  // positions below it belong to the sequence
  for (int64_t p = 0; p < end; ++p) {
    hash = Hash(hash, static_cast<uint64_t>(init.tokens[p]));
    uint64_t& entry = cache_[s.blocks[p / kKvBlockTokens]][p % kKvBlockTokens];
    if (p < slice.first_pos) {
      if (entry != hash) Mistake(Cat("cache of sequence ", slice.id, " is wrong at position ", p));
      if (state != nullptr && p + 1 == slice.first_pos && (state->hash != hash || state->position != p + 1)) {
        Mistake(Cat("state of sequence ", slice.id, " is wrong at position ", p));
      }
      continue;
    }
    entry = hash;
    if (init.prompt_logprobs && p == 0) result.prompt_tokens.emplace_back().id = init.tokens[0];
    if (init.prompt_logprobs && p + 1 < init.prompt_len) {
      TokenInfo& info = result.prompt_tokens.emplace_back();
      info.id = init.tokens[p + 1];
      info.logprob = LogprobFor(hash);
    }
    if (init.routed_experts && p < kept) ExpertsFor(hash, result.expert_ids);
    if (!slice.sample || p + 1 != kept) continue;
    TokenInfo& drawn = result.tokens.emplace_back();
    drawn.id = TokenFor(init.tokens, p + 1, hash, init.sampling.seed, init.choice);
    if (p + 1 < end && drawn.id == init.tokens[p + 1]) ++kept;
  }
  if (state != nullptr) *state = {hash, end};
  if (slice.save_snapshot >= 0) snapshots_[slice.save_snapshot] = *state;
  guesses_ += drafted;
  accepted_ += result.accepted();
  const bool taken_back = kept < end && rolls_back;
  // Over once only the last token is left, also when the step had no room for that one.
  if (slice.sample || end + 1 == known) s.replays = taken_back;
  // A false guess without rollback leaves a state that no later slice can go on from.
  if (taken_back && state != nullptr) *state = before;
  s.computed = taken_back ? slice.first_pos : kept;
  init.tokens.resize(slice.sample ? kept : known);
  if (slice.sample) init.tokens.push_back(result.tokens.back().id);
  return result;
}

std::string CheckRows(const SchedulerOptions& options, const ToyRank::Rows& rows) {
  if (rows.decoding + rows.others == 0) return "a step without work";
  if (rows.decoding + rows.others > options.max_num_batched_tokens) return "step over max_num_batched_tokens";
  if (rows.decoding > 0 && rows.others > std::max(options.prefill_chunk_tokens, options.prompt_multiple)) {
    return Cat("prefill part of ", rows.others, " tokens beside decoding sequences");
  }
  return "";
}

ToyRanks::ToyRanks(const SchedulerOptions& options) : options_(options) {
  for (int r = 0; r < options.num_ranks; ++r) ranks_.emplace_back(options, &mistakes_);
}

StatusOr<StepResult> ToyRanks::Step(const StepPlan& plan) {
  ++steps_;
  if (on_plan) on_plan(plan);
  StepResult result;
  result.step = plan.step;
  if (plan.ranks.size() != ranks_.size()) {
    mistakes_.push_back("not every rank has a plan");
    return result;
  }
  ToyRank::Rows rows;
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    const ToyRank::Rows part = ranks_[r].Begin(plan.ranks[r]);
    rows.decoding += part.decoding;
    rows.others += part.others;
    result.ranks.push_back(ranks_[r].Finish(plan.ranks[r]));
  }
  if (const std::string wrong = CheckRows(options_, rows); !wrong.empty()) mistakes_.push_back(wrong);
  if (during_step) {
    Status status = during_step();
    if (!status.ok()) return status;
  }
  if (on_result) on_result(result);
  return result;
}

int64_t ToyRanks::guesses() const {
  int64_t sum = 0;
  for (const ToyRank& rank : ranks_) sum += rank.guesses();
  return sum;
}

int64_t ToyRanks::accepted() const {
  int64_t sum = 0;
  for (const ToyRank& rank : ranks_) sum += rank.accepted();
  return sum;
}

}  // namespace moe::toy
