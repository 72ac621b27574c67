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

ToyRanks::ToyRanks(const SchedulerOptions& options) : options_(options), ranks_(options.num_ranks) {
  for (Rank& rank : ranks_) {
    rank.cache.assign(options.blocks_per_rank, std::vector<uint64_t>(kKvBlockTokens));
    rank.states.resize(options.state_slots_per_rank);
    rank.snapshots.resize(options.snapshot_slots_per_rank);
  }
}

void ToyRanks::Mistake(const std::string& what) {
  if (mistakes_.size() < 10) mistakes_.push_back(Cat("step ", steps_, ": ", what));
}

SliceResult ToyRanks::RunSlice(Rank& rank, const SlicePlan& slice) {
  SliceResult result;
  result.id = slice.id;
  const auto it = rank.known.find(slice.id);
  if (it == rank.known.end()) {
    Mistake(Cat("slice of unknown sequence ", slice.id));
    return result;
  }
  Known& s = it->second;
  SequenceInit& init = s.init;
  const auto drafted = static_cast<int64_t>(slice.draft.size());
  init.tokens.insert(init.tokens.end(), slice.draft.begin(), slice.draft.end());
  const auto known = static_cast<int64_t>(init.tokens.size());
  s.blocks.insert(s.blocks.end(), slice.new_blocks.begin(), slice.new_blocks.end());
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
  State* state = init.state_slot >= 0 ? &rank.states[init.state_slot] : nullptr;
  const State before = state != nullptr ? *state : State{};
  const bool rolls_back = options_.speculation.rolls_back;
  int64_t kept = end - drafted;  // positions below it belong to the sequence
  for (int64_t p = 0; p < end; ++p) {
    hash = Hash(hash, static_cast<uint64_t>(init.tokens[p]));
    uint64_t& entry = rank.cache[s.blocks[p / kKvBlockTokens]][p % kKvBlockTokens];
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
  if (slice.save_snapshot >= 0) rank.snapshots[slice.save_snapshot] = *state;
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

StatusOr<StepResult> ToyRanks::Step(const StepPlan& plan) {
  ++steps_;
  if (on_plan) on_plan(plan);
  StepResult result;
  result.step = plan.step;
  if (static_cast<int>(plan.ranks.size()) != options_.num_ranks) Mistake("not every rank has a plan");
  int64_t decoding = 0, others = 0;
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    Rank& rank = ranks_[r];
    for (SequenceId id : plan.ranks[r].drop) {
      if (rank.known.erase(id) != 1) Mistake("dropped twice or never known");
    }
    for (const SequenceInit& init : plan.ranks[r].admit) {
      if (!rank.known.emplace(init.id, Known{init}).second) Mistake("admitted twice");
      if (init.state_slot >= 0) {
        rank.states[init.state_slot] = init.state_snapshot >= 0 ? rank.snapshots[init.state_snapshot] : State{};
      }
    }
    std::set<int32_t> slots;
    for (const auto& [id, s] : rank.known) {
      if (s.init.state_slot >= 0 && !slots.insert(s.init.state_slot).second) Mistake("a state slot has two owners");
    }
    int64_t with_guesses = 0;
    for (const SlicePlan& slice : plan.ranks[r].slices) with_guesses += slice.draft.empty() ? 0 : 1;
    if (options_.speculation.rolls_back && with_guesses > options_.speculation.slices_per_rank) {
      Mistake("more slices with guesses than states can be saved");
    }
    std::set<SequenceId> seen;
    RankResult& out = result.ranks.emplace_back();
    for (const SlicePlan& slice : plan.ranks[r].slices) {
      if (!seen.insert(slice.id).second) Mistake("two slices of one sequence");
      const auto it = rank.known.find(slice.id);
      // One that comes (back) in this step and finds all but its last token cached was not running: nobody reads it
      // now.
      const auto drafted = static_cast<int64_t>(slice.draft.size());
      const bool decodes = it != rank.known.end() && !it->second.fresh &&
                           ((slice.count - drafted == 1 && slice.sample) || it->second.replays) &&
                           slice.first_pos >= it->second.init.prompt_len;
      (decodes ? decoding : others) += slice.count;
      out.slices.push_back(RunSlice(rank, slice));
    }
    out.expert_tokens.assign(kLayers * kExperts, 1);
  }
  if (decoding + others == 0) Mistake("a step without work");
  if (decoding + others > options_.max_num_batched_tokens) Mistake("step over max_num_batched_tokens");
  if (decoding > 0 && others > std::max(options_.prefill_chunk_tokens, options_.prompt_multiple)) {
    Mistake(Cat("prefill part of ", others, " tokens beside decoding sequences"));
  }
  if (during_step) {
    Status status = during_step();
    if (!status.ok()) return status;
  }
  return result;
}

}  // namespace moe::toy
