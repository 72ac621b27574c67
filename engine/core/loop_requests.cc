#include "engine/core/loop_requests.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/schedule/check_request.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

bool Has(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The position that the first of a slice's prompt_tokens tells of: a row tells of the token after it, and nothing
// precedes position 0, whose empty entry comes with the first slice.
int64_t FirstDescribed(const SlicePlan& slice) {
  return slice.first_pos == 0 ? 0 : slice.first_pos + 1;
}

// Whether the tokens are some that the slice could draw: all but the last are its guesses.
bool Answers(const SlicePlan& slice, const SliceResult& result) {
  if (!slice.sample) return result.tokens.empty();
  if (result.tokens.empty() || result.tokens.size() > slice.draft.size() + 1) return false;
  return std::equal(result.tokens.begin(), result.tokens.end() - 1, slice.draft.begin(),
                    [](const TokenInfo& token, int32_t guess) { return token.id == guess; });
}

}  // namespace

void LoopRequests::Submit(uint64_t handle, std::shared_ptr<const Request> request, std::shared_ptr<ResponseSink> sink,
                          double submitted) {
  auto owned = std::make_unique<State>();
  State& state = *owned;
  state.handle = handle;
  state.request = std::move(request);
  state.sink = std::move(sink);
  state.submitted = submitted;
  state.max_new_tokens = EffectiveMaxNewTokens(*state.request, scheduler_->options().max_model_len);
  state.choices.resize(state.request->num_choices);
  state.unfinished = state.request->num_choices;
  for (uint32_t c = 0; c < state.request->num_choices; ++c) {
    const SequenceId id = scheduler_->Add(state.request, c, c == 0 ? 0 : state.choices[0].sequence);
    state.choices[c].sequence = id;
    owners_[id] = {&state, c};
  }
  requests_[handle] = std::move(owned);
}

void LoopRequests::End(State& state, const Status& status, double now) {
  for (const Choice& choice : state.choices) {
    if (choice.finished) continue;
    scheduler_->Remove(choice.sequence);
    owners_.erase(choice.sequence);
  }
  ++num_ended_;
  if (!state.started) ++num_left_queue_;
  state.times.total_seconds = now - state.submitted;
  if (!state.started) state.times.queue_seconds = state.times.total_seconds;
  if (status.ok()) {
    stats_->AddRequestOk(state.times.total_seconds, static_cast<int64_t>(state.request->prompt.size()),
                         state.generated);
  } else if (absl::IsCancelled(status)) {
    stats_->AddRequestCancelled();
  } else {
    stats_->AddRequestFailed();
  }
  // The map lets go first: the sink may ask for counts.
  const auto node = requests_.extract(state.handle);
  state.sink->OnDone(status, state.times);
}

void LoopRequests::EndIfFinished(State& state, double now) {
  if (state.unfinished == 0) End(state, absl::OkStatus(), now);
}

void LoopRequests::Fail(uint64_t handle, const Status& status, double now) {
  if (const auto it = requests_.find(handle); it != requests_.end()) End(*it->second, status, now);
}

void LoopRequests::FailAll(const Status& status, double now) {
  while (!requests_.empty()) End(*requests_.begin()->second, status, now);
}

void LoopRequests::Abort(uint64_t handle, double now) {
  const auto it = requests_.find(handle);
  if (it == requests_.end()) return;
  State& state = *it->second;
  for (uint32_t c = 0; c < state.choices.size(); ++c) {
    if (state.choices[c].finished) continue;
    OutputChunk chunk = TakeChunk(state, c);
    chunk.finish = FinishReason::kCancelled;
    FinishChoice(state, c, chunk.finish);
    state.sink->OnOutput(std::move(chunk));
  }
  EndIfFinished(state, now);
}

void LoopRequests::AbortAll(double now) {
  while (!requests_.empty()) Abort(requests_.begin()->first, now);
}

void LoopRequests::StopChoice(uint64_t handle, uint32_t choice, double now) {
  const auto it = requests_.find(handle);
  if (it == requests_.end()) return;
  State& state = *it->second;
  if (choice >= state.choices.size() || state.choices[choice].finished) return;
  OutputChunk chunk = TakeChunk(state, choice);
  chunk.finish = FinishReason::kStop;
  FinishChoice(state, choice, chunk.finish);
  state.sink->OnOutput(std::move(chunk));
  EndIfFinished(state, now);
}

void LoopRequests::FinishChoice(State& state, uint32_t choice, FinishReason reason) {
  Choice& c = state.choices[choice];
  MOE_CHECK(!c.finished);
  c.finished = true;
  --state.unfinished;
  scheduler_->Remove(c.sequence);
  owners_.erase(c.sequence);
  stats_->AddFinish(reason);
}

void LoopRequests::NoteStarted(double now) {
  for (SequenceId id : scheduler_->started()) {
    State& state = *owners_.at(id).state;
    stats_->AddCachedPromptTokens(scheduler_->Find(id)->cached_prompt_tokens);
    if (state.started) continue;
    state.started = true;
    ++num_left_queue_;
    state.times.queue_seconds = now - state.submitted;
    stats_->AddStarted(state.times.queue_seconds);
  }
}

Status LoopRequests::CheckResult(const StepPlan& plan, const StepResult& result) const {
  if (result.step != plan.step || result.ranks.size() != plan.ranks.size()) {
    return absl::InternalError(Cat("step ", plan.step, " of ", plan.ranks.size(), " ranks got the result of step ",
                                   result.step, " of ", result.ranks.size(), " ranks"));
  }
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    const std::vector<SlicePlan>& slices = plan.ranks[r].slices;
    const std::vector<SliceResult>& results = result.ranks[r].slices;
    if (results.size() != slices.size()) {
      return absl::InternalError(Cat("rank ", r, " answered ", results.size(), " of ", slices.size(), " slices"));
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      const Sequence* sequence = scheduler_->Find(slices[i].id);
      const int64_t described = static_cast<int64_t>(results[i].prompt_tokens.size());
      if (results[i].id != slices[i].id || !Answers(slices[i], results[i]) ||
          (sequence != nullptr && described > 0 && FirstDescribed(slices[i]) + described > sequence->prompt_len) ||
          static_cast<int64_t>(results[i].expert_ids.size()) % KeptRows(slices[i], results[i]) != 0) {
        return absl::InternalError(Cat("rank ", r, " answered slice ", i, " with something else"));
      }
    }
  }
  return absl::OkStatus();
}

void LoopRequests::TakeResult(const StepPlan& plan, StepResult& result, double now, double step_seconds) {
  counts_.now = now;
  counts_.seconds = step_seconds;
  counts_.sequences = counts_.tokens = counts_.prompt_tokens = counts_.generated = 0;
  counts_.inter_token_seconds.clear();
  counts_.first_token_seconds.clear();
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    for (size_t i = 0; i < plan.ranks[r].slices.size(); ++i) {
      TakeSlice(plan.ranks[r].slices[i], result.ranks[r].slices[i], now);
    }
  }
  stats_->AddStep(counts_, result);
}

void LoopRequests::TakeSlice(const SlicePlan& plan, SliceResult& result, double now) {
  ++counts_.sequences;
  counts_.tokens += plan.count;
  const auto it = owners_.find(plan.id);
  if (it == owners_.end()) return;  // ended while the step ran
  State& state = *it->second.state;
  const uint32_t index = it->second.choice;
  Choice& choice = state.choices[index];
  const int64_t prompt_len = static_cast<int64_t>(state.request->prompt.size());
  if (plan.first_pos < prompt_len) counts_.prompt_tokens += plan.count;
  if (result.not_finite) {
    const Status status = absl::InternalError(
        Cat("the model's logits are not finite (NaN or infinity), within positions ", plan.first_pos, " to ",
            plan.first_pos + plan.count - 1, " of choice ", index, ": its weights overflow on this input"));
    MOE_LOG(kWarning) << "request " << state.request->id << ": " << status.message();
    End(state, status, now);
    return;
  }

  if (!result.prompt_tokens.empty()) {
    choice.prompt.resize(prompt_len);
    int64_t position = FirstDescribed(plan);
    for (TokenInfo& info : result.prompt_tokens) choice.prompt[position++] = std::move(info);
  }
  // Up to the first token that ends the choice; those behind it were never asked for.
  FinishReason reason = FinishReason::kNone;
  size_t taken = 0;
  while (taken < result.tokens.size() && reason == FinishReason::kNone) {
    ++choice.generated;
    reason = WhyFinished(state, choice, result.tokens[taken++].id);
  }
  const auto dropped = static_cast<int64_t>(result.tokens.size() - taken);
  if (state.request->routed_experts) {
    const int64_t width = static_cast<int64_t>(result.expert_ids.size()) / KeptRows(plan, result);
    const int64_t rows = KeptRows(plan, result) - dropped;
    const int64_t known = std::clamp<int64_t>(choice.expert_positions - plan.first_pos, 0, rows);
    choice.expert_ids.insert(choice.expert_ids.end(), result.expert_ids.begin() + known * width,
                             result.expert_ids.begin() + rows * width);
    choice.expert_rows += static_cast<uint32_t>(rows - known);
    choice.expert_positions = std::max(choice.expert_positions, plan.first_pos + rows);
  }
  if (taken == 0) return;

  state.generated += static_cast<int64_t>(taken);
  counts_.generated += static_cast<int64_t>(taken);
  if (!state.has_token) {
    state.has_token = true;
    state.times.time_to_first_token_seconds = now - state.submitted;
    counts_.first_token_seconds.push_back(state.times.time_to_first_token_seconds);
  }
  // Tokens that come together share the time since those before them.
  if (choice.generated > static_cast<int64_t>(taken)) {
    counts_.inter_token_seconds.insert(counts_.inter_token_seconds.end(), taken,
                                       (now - choice.last_token_time) / static_cast<double>(taken));
  }
  choice.last_token_time = now;

  OutputChunk chunk = TakeChunk(state, index);
  if (!choice.prompt.empty()) {
    chunk.prompt_tokens = std::exchange(choice.prompt, {});
    scheduler_->PromptLogprobsDone(plan.id);
  }
  const int32_t last = result.tokens.back().id;
  // One by one: the vector's own memory serves later steps.
  const auto tokens = std::make_move_iterator(result.tokens.begin());
  chunk.tokens.assign(tokens, tokens + static_cast<std::ptrdiff_t>(taken));
  chunk.finish = reason;
  if (reason == FinishReason::kNone) {
    scheduler_->AppendToken(plan.id, last);
    state.sink->OnOutput(std::move(chunk));
    return;
  }
  FinishChoice(state, index, reason);
  state.sink->OnOutput(std::move(chunk));
  EndIfFinished(state, now);
}

FinishReason LoopRequests::WhyFinished(const State& state, const Choice& choice, int32_t token) {
  // The sampler masks end ids up to min_new_tokens; it can only return one earlier when nothing else is possible.
  if (choice.generated > state.request->min_new_tokens) {
    if (Has(state.request->eos_token_ids, token)) return FinishReason::kEos;
    if (Has(state.request->stop_token_ids, token)) return FinishReason::kStop;
  }
  return choice.generated >= state.max_new_tokens ? FinishReason::kLength : FinishReason::kNone;
}

OutputChunk LoopRequests::TakeChunk(State& state, uint32_t choice) const {
  Choice& c = state.choices[choice];
  const Sequence* sequence = scheduler_->Find(c.sequence);
  OutputChunk chunk;
  chunk.choice = choice;
  chunk.expert_ids = std::exchange(c.expert_ids, {});
  chunk.expert_rows = std::exchange(c.expert_rows, 0);
  chunk.cached_prompt_tokens = sequence == nullptr ? 0 : static_cast<uint32_t>(sequence->cached_prompt_tokens);
  return chunk;
}

}  // namespace moe
