#include "server/generate_call.h"

#include <algorithm>
#include <utility>

#include "server/chat_prompt.h"
#include "server/model_host.h"
#include "server/work_pool.h"

namespace moe {
namespace {

// How long a client that was cut off may take to fetch what is in flight and the final status.
constexpr std::chrono::seconds kSlowGrace{5};
// Waiting deltas are merged up to this size: a message is several times larger in protobuf's hands than here, and a
// stalled stream keeps one of them.
constexpr int64_t kMergedBytes = 64 << 10;
// So many positions of every choice may wait in any case: one with log-probabilities of the whole vocabulary may be a
// megabyte, and a step makes one of every choice.
constexpr int64_t kMinBacklogTokens = 2;
// One token id with its log-probability in protobuf.
constexpr int64_t kAlternativeBytes = 12;

Status SlowReaderError() {
  return absl::ResourceExhaustedError("the client does not read its stream fast enough; the request was cancelled");
}

}  // namespace

GenerateCall::GenerateCall(const Environment& environment, Method method, GenerateSpec spec, CallOutlet* outlet)
    : environment_(environment),
      method_(method),
      id_(spec.request.id),
      num_choices_(spec.request.num_choices),
      spec_(std::move(spec)),
      outlet_(outlet) {}

GenerateCall::~GenerateCall() {
  SetBacklogLocked(0);
}

void GenerateCall::Start() {
  const bool scheduled = environment_.prompt_pool->TrySchedule([self = shared_from_this()] { self->EncodeAndSubmit(); },
                                                               environment_.max_waiting_prompts);
  if (scheduled) return;
  environment_.counters->Rejected(RejectReason::kQueueFull);
  std::lock_guard lock(mutex_);
  CloseLocked(absl::ResourceExhaustedError(
      Cat("the queue is full: ", environment_.max_waiting_prompts, " prompts wait to be tokenized; try again later")));
}

void GenerateCall::EncodeAndSubmit() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
  }
  if (Status status = Encode(); !status.ok()) {
    environment_.counters->Rejected(RejectReason::kInvalid);
    std::lock_guard lock(mutex_);
    CloseLocked(status);
    return;
  }
  assembler_ = std::make_unique<OutputAssembler>(environment_.model->prompts.tokenizer(), spec_.text_wanted,
                                                 spec_.request.num_choices);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    usage_.prompt_tokens = static_cast<uint32_t>(spec_.request.prompt.size());
  }
  StatusOr<uint64_t> handle = environment_.model->engine->Submit(std::move(spec_.request), shared_from_this());
  if (!handle.ok()) {
    const absl::StatusCode code = handle.status().code();
    environment_.counters->Rejected(code == absl::StatusCode::kResourceExhausted ? RejectReason::kQueueFull
                                    : code == absl::StatusCode::kUnavailable     ? RejectReason::kDraining
                                                                                 : RejectReason::kInvalid);
    std::lock_guard lock(mutex_);
    CloseLocked(handle.status());
    return;
  }
  // Whatever was asked while the handle was not known yet is done now.
  std::unique_lock lock(mutex_);
  handle_ = *handle;
  const bool cancel = closed_;
  const bool abort = abort_wanted_;
  const std::vector<uint32_t> stops = std::exchange(early_stops_, {});
  lock.unlock();
  if (cancel) {
    environment_.model->engine->Cancel(*handle);
  } else if (abort) {
    environment_.model->engine->Abort(*handle);
  }
  TellEngine(stops);
}

Status GenerateCall::Encode() {
  const PromptEncoder& prompts = environment_.model->prompts;
  const char* field = "tokens.ids";
  if (spec_.input != GenerateSpec::Input::kTokens) {
    const bool is_text = spec_.input == GenerateSpec::Input::kText;
    field = is_text ? "text" : "chat";
    MOE_ASSIGN_OR_RETURN(EncodedPrompt encoded, is_text ? prompts.EncodeText(spec_.text, /*add_special=*/true)
                                                        : prompts.EncodeChat(*spec_.chat));
    spec_.request.prompt = std::move(encoded.ids);
    spec_.text = {};
    spec_.chat = nullptr;
  }
  const int64_t tokens = static_cast<int64_t>(spec_.request.prompt.size());
  const int64_t context = environment_.model->engine->info().max_model_len;
  if (tokens == 0) return InvalidError(field, ": gives no tokens; a prompt needs at least one");
  if (tokens >= context) {
    return InvalidError(field, ": ", tokens, " prompt tokens are not in [1, ", context - 1, "]; the context holds ",
                        context, " tokens, prompt and output together");
  }
  return CheckAnswerSize(tokens, context);
}

// Log-probabilities of many alternatives at many positions are refused before they are computed: the answer could not
// be sent, and would be held in memory meanwhile. The prompt's part is one message; the tokens of a stream are one
// each.
Status GenerateCall::CheckAnswerSize(int64_t prompt_tokens, int64_t context) const {
  const Request& request = spec_.request;
  const int64_t vocab = environment_.model->engine->model().spec.vocab_size;
  const auto bytes = [&](const std::optional<int32_t>& alternatives, int64_t positions) {
    if (!alternatives.has_value()) return int64_t{0};
    return positions * (1 + (*alternatives < 0 ? vocab : *alternatives)) * kAlternativeBytes;
  };
  const int64_t generated =
      streaming() ? 1 : std::min(request.max_new_tokens, context - prompt_tokens) * request.num_choices;
  const int64_t limit = environment_.max_message_bytes;
  if (const int64_t size = bytes(request.prompt_logprobs, prompt_tokens); size > limit) {
    return InvalidError("output.prompt_logprobs: ", *request.prompt_logprobs, " for ", prompt_tokens,
                        " prompt tokens makes about ", size, " bytes; a message holds ", limit, " (max-message-bytes)");
  }
  if (const int64_t size = bytes(request.logprobs, generated); size > limit) {
    return InvalidError("output.logprobs: ", *request.logprobs, " for up to ", generated,
                        " generated tokens makes about ", size, " bytes; a message holds ", limit,
                        " (max-message-bytes). Stream, or lower max_new_tokens or n");
  }
  return Status();
}

void GenerateCall::OnOutput(OutputChunk chunk) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  inbox_.push_back(std::move(chunk));
  ScheduleProcessing(std::move(lock));
}

void GenerateCall::OnDone(const Status& status, const RequestTimes& times) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  done_ = status;
  done_times_ = times;
  ScheduleProcessing(std::move(lock));
}

void GenerateCall::ScheduleProcessing(std::unique_lock<std::mutex> lock) {
  if (std::exchange(processing_, true)) return;
  lock.unlock();
  environment_.output_pool->Schedule([self = shared_from_this()] { self->Process(); });
}

void GenerateCall::Process() {
  std::vector<OutputChunk> chunks;
  std::vector<Delta> deltas;
  std::vector<uint32_t> stops;
  while (true) {
    std::optional<Status> done;
    {
      std::lock_guard lock(mutex_);
      chunks.clear();
      chunks.swap(inbox_);
      done = std::exchange(done_, std::nullopt);
      if (closed_ || (chunks.empty() && !done.has_value())) {
        processing_ = false;
        return;
      }
    }
    deltas.clear();
    stops.clear();
    for (OutputChunk& chunk : chunks) {
      bool stop_found = false;
      deltas.push_back(assembler_->Take(std::move(chunk), &stop_found));
      if (stop_found) stops.push_back(deltas.back().choice);
    }
    TellEngine(stops);

    bool slow = false;
    {
      std::lock_guard lock(mutex_);
      for (Delta& delta : deltas) MergeLocked(std::move(delta));
      usage_.generated_tokens = assembler_->generated_tokens();
      usage_.cached_prompt_tokens = assembler_->cached_prompt_tokens();
      all_finished_ = assembler_->AllFinished();
      if (done.has_value()) {
        result_ = *done;
        usage_.times = done_times_;
      }
      PumpLocked();
      slow = DropIfSlowLocked();
    }
    if (slow) CancelInEngine();
  }
}

void GenerateCall::TellEngine(const std::vector<uint32_t>& stopped_choices) {
  if (stopped_choices.empty()) return;
  uint64_t handle = 0;
  {
    std::lock_guard lock(mutex_);
    if (!handle_.has_value()) {  // Submit has not returned yet; EncodeAndSubmit will tell
      early_stops_.insert(early_stops_.end(), stopped_choices.begin(), stopped_choices.end());
      return;
    }
    handle = *handle_;
  }
  for (uint32_t choice : stopped_choices) environment_.model->engine->StopChoice(handle, choice);
}

void GenerateCall::MergeLocked(Delta delta) {
  if (closed_) return;
  if (delta.tokens.empty() && delta.prompt_tokens.empty() && delta.expert_rows == 0 && delta.text.empty() &&
      delta.finish == FinishReason::kNone) {
    return;
  }
  const int64_t bytes = delta.Bytes();
  if (!delta.tokens.empty() && delta.prompt_tokens.empty()) {
    largest_token_ = std::max(largest_token_, bytes / static_cast<int64_t>(delta.tokens.size()));
  }
  const auto last = std::find_if(outbox_.rbegin(), outbox_.rend(),
                                 [&](const Waiting& waiting) { return waiting.delta.choice == delta.choice; });
  if (last != outbox_.rend() && (!streaming() || last->bytes < kMergedBytes)) {
    last->delta.Append(std::move(delta));
    const int64_t added = bytes - static_cast<int64_t>(sizeof(Delta));
    last->bytes += added;
    SetBacklogLocked(outbox_bytes_ + added);
  } else {
    outbox_.push_back({std::move(delta), bytes});
    SetBacklogLocked(outbox_bytes_ + bytes);
  }
}

void GenerateCall::PumpLocked() {
  if (closed_) return;
  if (streaming()) {
    // The delta that ends the last choice waits for OnDone (at most a step away), to carry the final times.
    const bool hold = !result_.has_value() && all_finished_ && outbox_.size() == 1;
    if (!sending_ && !outbox_.empty() && !hold) SendNextLocked();
    if (sending_ || !outbox_.empty()) return;
  }
  if (result_.has_value()) CloseLocked(*result_);
}

void GenerateCall::SendNextLocked() {
  Waiting next = std::move(outbox_.front());
  outbox_.pop_front();
  SetBacklogLocked(outbox_bytes_ - next.bytes);
  sending_ = true;
  sending_since_ = Clock::now();
  outlet_->Send(std::move(next.delta), usage_);
}

void GenerateCall::OnSent(bool ok, bool deadline_passed) {
  if (!ok) {
    ClientGone(deadline_passed);
    return;
  }
  std::lock_guard lock(mutex_);
  sending_ = false;
  PumpLocked();
}

void GenerateCall::SetBacklogLocked(int64_t bytes) {
  const int64_t change = bytes - std::exchange(outbox_bytes_, bytes);
  if (streaming()) environment_.stream_backlog->fetch_add(change, std::memory_order_relaxed);
}

bool GenerateCall::BacklogTooLargeLocked() const {
  const StreamLimits& limits = environment_.limits;
  const int64_t least = kMinBacklogTokens * num_choices_ * largest_token_;
  if (outbox_bytes_ <= std::max(limits.max_backlog_bytes, least)) return false;
  return outbox_bytes_ > std::max(limits.hard_backlog_bytes, least) ||
         environment_.stream_backlog->load(std::memory_order_relaxed) > limits.total_backlog_bytes;
}

bool GenerateCall::StalledLocked(Clock::time_point now) const {
  if (!sending_) return false;
  const StreamLimits& limits = environment_.limits;
  const double taken_nothing = std::chrono::duration<double>(now - sending_since_).count();
  return taken_nothing > limits.stall_seconds ||
         (taken_nothing > limits.backlog_seconds && outbox_bytes_ > limits.max_backlog_bytes);
}

bool GenerateCall::DropIfSlowLocked() {
  if (closed_ || !streaming() || !sending_ || !BacklogTooLargeLocked()) return false;
  slow_ = true;
  EndEarlyLocked(CancelCause::kSlowReader, SlowReaderError());
  return true;
}

void GenerateCall::CheckStall(Clock::time_point now) {
  const auto limit = std::chrono::duration<double>(environment_.limits.stall_seconds);
  {
    std::lock_guard lock(mutex_);
    if (outlet_ == nullptr) return;
    if (closed_) {
      const bool overdue = slow_ ? now - closed_at_ > kSlowGrace : now - closed_at_ > limit;
      if (overdue && !std::exchange(broken_, true)) outlet_->Break();
      return;
    }
    if (!StalledLocked(now)) return;
    slow_ = true;
    EndEarlyLocked(CancelCause::kSlowReader, SlowReaderError());
  }
  CancelInEngine();
}

void GenerateCall::ClientGone(bool deadline_passed) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (deadline_passed) {
      EndEarlyLocked(CancelCause::kDeadline, absl::DeadlineExceededError("the call's deadline passed"));
    } else {
      EndEarlyLocked(CancelCause::kClient, absl::CancelledError("the client cancelled the call or left"));
    }
  }
  CancelInEngine();
}

bool GenerateCall::Abort() {
  std::optional<uint64_t> handle;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || result_.has_value() || std::exchange(abort_wanted_, true)) return false;
    environment_.counters->Cancelled(CancelCause::kAbort);
    handle = handle_;
  }
  if (handle.has_value()) environment_.model->engine->Abort(*handle);
  return true;
}

void GenerateCall::Detach() {
  std::lock_guard lock(mutex_);
  outlet_ = nullptr;
}

void GenerateCall::EndEarlyLocked(CancelCause cause, const Status& status) {
  environment_.counters->Cancelled(cause);
  outbox_.clear();
  SetBacklogLocked(0);
  result_.reset();
  CloseLocked(status);
}

void GenerateCall::CancelInEngine() {
  std::optional<uint64_t> handle;
  {
    std::lock_guard lock(mutex_);
    handle = handle_;
  }
  if (handle.has_value()) environment_.model->engine->Cancel(*handle);  // else EncodeAndSubmit sees closed_
}

void GenerateCall::CloseLocked(const Status& status) {
  if (std::exchange(closed_, true)) return;
  closed_at_ = Clock::now();
  inbox_.clear();
  done_.reset();
  std::vector<Delta> rest;
  for (Waiting& waiting : outbox_) rest.push_back(std::move(waiting.delta));
  outbox_.clear();
  SetBacklogLocked(0);
  environment_.counters->Finished(method_, static_cast<int>(status.code()));
  if (outlet_ != nullptr) outlet_->Finish(status, std::move(rest), usage_);
}

}  // namespace moe
