#include "engine/core/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "engine/schedule/check_request.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

// In a row, each with a new group of ranks. Ranks that die one after the other take fewer.
constexpr int kMostFailedSteps = 100;

}  // namespace

EngineLoop::Clock EngineLoop::SteadyClock() {
  return [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
}

EngineLoop::EngineLoop(const ModelSpec& spec, const EngineLoopOptions& options, LoopInbox& inbox, RankLink& link,
                       Clock clock)
    : spec_(spec),
      options_(options),
      inbox_(inbox),
      link_(link),
      clock_(std::move(clock)),
      scheduler_(options.scheduler),
      stats_(spec, options.scheduler.num_ranks),
      requests_(scheduler_, stats_) {
  MOE_CHECK_EQ(options.scheduler.num_ranks, link.num_ranks());
  progress_ = rebalanced_ = clock_();
  stats_.SetPlacements(link_.Placements());
  PublishGauges();
}

EngineLoop::~EngineLoop() {
  Stop();
}

// --- Any thread ---

StatusOr<uint64_t> EngineLoop::Submit(Request request, std::shared_ptr<ResponseSink> sink) {
  MOE_RETURN_IF_ERROR(CheckRequest(request, spec_, options_.scheduler.max_model_len));
  LoopMessage message;
  message.kind = LoopMessage::Kind::kSubmit;
  message.request = std::make_shared<const Request>(std::move(request));
  message.sink = std::move(sink);
  // Under the lock, so that handles are in the order of the inbox and nothing slips in after StopAccepting.
  std::lock_guard lock(accept_mutex_);
  if (!refuse_.ok()) return refuse_;
  if (!no_ranks_.ok()) return no_ranks_;
  if (queued_.load() >= options_.max_queue) {
    stats_.AddRejectedQueueFull();
    return absl::ResourceExhaustedError(
        Cat("the queue is full: ", options_.max_queue, " requests are waiting (max_queue)"));
  }
  const double now = clock_();
  ++queued_;
  if (unfinished_.load() == 0) progress_ = now;  // before it counts: Health reads them in the other order
  ++unfinished_;
  inbox_choices_ += message.request->num_choices;
  message.time = now;
  const uint64_t handle = next_handle_++;
  message.handle = handle;
  inbox_.Push(std::move(message));
  return handle;
}

void EngineLoop::Cancel(uint64_t handle) {
  inbox_.Push({.kind = LoopMessage::Kind::kCancel, .handle = handle});
}

void EngineLoop::Abort(uint64_t handle) {
  inbox_.Push({.kind = LoopMessage::Kind::kAbort, .handle = handle});
}

void EngineLoop::StopChoice(uint64_t handle, uint32_t choice) {
  inbox_.Push({.kind = LoopMessage::Kind::kStopChoice, .handle = handle, .choice = choice});
}

void EngineLoop::StopAccepting() {
  std::lock_guard lock(accept_mutex_);
  if (refuse_.ok()) refuse_ = absl::UnavailableError("the server is draining and takes no new requests");
}

void EngineLoop::AbortAll() {
  inbox_.Push({.kind = LoopMessage::Kind::kAbortAll});
}

void EngineLoop::FlushPrefixCache(std::function<void(int64_t)> done) {
  {
    std::lock_guard lock(accept_mutex_);
    if (!closed_) {
      inbox_.Push({.kind = LoopMessage::Kind::kFlush, .done = std::move(done)});
      return;
    }
  }
  done(0);
}

void EngineLoop::Rebalance(int64_t redundant_experts, std::function<void(const Status&)> done) {
  {
    std::lock_guard lock(accept_mutex_);
    if (!closed_ && fault_.ok()) {
      inbox_.Push(
          {.kind = LoopMessage::Kind::kRebalance, .redundant_experts = redundant_experts, .settled = std::move(done)});
      return;
    }
  }
  done(absl::UnavailableError("the engine has stopped"));
}

int64_t EngineLoop::FlushPrefixCache() {
  auto freed = std::make_shared<std::promise<int64_t>>();
  std::future<int64_t> result = freed->get_future();
  FlushPrefixCache([freed](int64_t blocks) { freed->set_value(blocks); });
  return result.get();
}

EngineStats EngineLoop::Stats() const {
  EngineStats stats = stats_.Copy(clock_());
  stats.waiting += inbox_choices_.load();
  stats.group = link_.GroupStats();
  return stats;
}

bool EngineLoop::WaitsForRanks() const {
  if (link_.Health().ok()) return false;
  const std::lock_guard lock(accept_mutex_);
  return fault_.ok() && no_ranks_.ok();
}

Status EngineLoop::Health(double limit_seconds) const {
  {
    std::lock_guard lock(accept_mutex_);
    if (!fault_.ok()) return fault_;
  }
  MOE_RETURN_IF_ERROR(link_.Health());
  // In this order: a request that comes in between has set progress_ before it counts as unfinished.
  const bool working = Unfinished() != 0;
  const double now = clock_();
  double idle = now - progress_.load();
  {
    // A long step is not a stuck one: its layers count as progress.
    std::lock_guard lock(heartbeat_mutex_);
    const uint64_t heartbeat = link_.Heartbeat();
    if (heartbeat != last_heartbeat_) {
      last_heartbeat_ = heartbeat;
      heartbeat_time_ = now;
    }
    idle = std::min(idle, now - heartbeat_time_);
  }
  if (!working || idle <= limit_seconds) {
    stall_logged_ = false;
    return absl::OkStatus();
  }
  const EngineStats stats = Stats();
  Status status = absl::UnavailableError(Cat("no step has finished for ", idle, " s while ", stats.running,
                                             " sequences run and ", stats.waiting, " wait"));
  if (!stall_logged_.exchange(true)) {
    MOE_LOG(kError) << status.message() << "; K/V blocks used " << stats.kv_blocks_used << " of "
                    << stats.kv_blocks_total << ", steps so far " << stats.steps;
  }
  return status;
}

// --- The owner ---

void EngineLoop::Start() {
  MOE_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void EngineLoop::Stop() {
  if (std::exchange(stopped_, true)) return;
  {
    std::lock_guard lock(accept_mutex_);
    if (refuse_.ok()) refuse_ = absl::UnavailableError("the server is shutting down");
  }
  stop_ = true;
  link_.Interrupt();
  inbox_.Push({});
  if (thread_.joinable()) thread_.join();
  {
    std::lock_guard lock(accept_mutex_);
    closed_ = true;
  }
  HandleMessages();  // what came before; nothing that needs an answer comes after
  ended_rebalances_->closed = true;
  EndRebalances();
  requests_.FailAll(absl::CancelledError("the server is shutting down"), clock_());
  PublishGauges();
}

void EngineLoop::Run() {
  while (!stop_) {
    if (!RunOnce()) inbox_.Wait();
  }
}

// --- The loop ---

bool EngineLoop::RunOnce() {
  const bool had_messages = HandleMessages();
  if (!faulted_ && !SettleRanks()) {
    PublishGauges();
    return had_messages;
  }
  const bool has_work = requests_.size() > 0;
  if (has_work) RunStep();
  if (!faulted_) RebalanceIfDue();
  if (had_messages || has_work) PublishGauges();
  return had_messages || has_work;
}

bool EngineLoop::HandleMessages() {
  if (!inbox_.TakeAll(messages_)) return false;
  for (LoopMessage& message : messages_) Handle(message);
  messages_.clear();  // lets go of requests and sinks now
  return true;
}

void EngineLoop::Handle(LoopMessage& message) {
  const double now = clock_();
  switch (message.kind) {
    case LoopMessage::Kind::kSubmit: {
      inbox_choices_ -= message.request->num_choices;
      requests_.Submit(message.handle, std::move(message.request), std::move(message.sink), message.time);
      Status fault;
      {
        std::lock_guard lock(accept_mutex_);
        fault = fault_;
      }
      if (!fault.ok()) requests_.Fail(message.handle, fault, now);
      break;
    }
    case LoopMessage::Kind::kCancel:
      requests_.Fail(message.handle, absl::CancelledError("the request was cancelled"), now);
      break;
    case LoopMessage::Kind::kAbort:
      requests_.Abort(message.handle, now);
      break;
    case LoopMessage::Kind::kStopChoice:
      requests_.StopChoice(message.handle, message.choice, now);
      break;
    case LoopMessage::Kind::kAbortAll:
      requests_.AbortAll(now);
      break;
    case LoopMessage::Kind::kFlush:
      message.done(scheduler_.FlushPrefixCache());
      break;
    case LoopMessage::Kind::kRebalance:
      StartRebalance(message.redundant_experts, std::move(message.settled));
      break;
    case LoopMessage::Kind::kWake:
      break;
  }
}

bool EngineLoop::SettleRanks() {
  const StatusOr<RankChange> change = link_.Settle(!suspended_);
  if (!change.ok()) {
    if (absl::IsUnavailable(change.status())) {
      Suspend(change.status());
    } else {
      Fault(change.status());
    }
    return false;
  }
  if (std::exchange(suspended_, false)) {
    MOE_LOG(kInfo) << "there are ranks again: requests are taken";
    const std::lock_guard lock(accept_mutex_);
    no_ranks_ = absl::OkStatus();
  }
  for (int rank : change->lost) scheduler_.LoseRank(rank);
  for (int rank : change->gained) scheduler_.GainRank(rank);
  if (change->forgotten) scheduler_.ForgetRanks();
  if (change->moved) stats_.SetPlacements(link_.Placements());
  EndRebalances();
  return true;
}

// Requests that came in before they were refused end here too.
void EngineLoop::Suspend(const Status& reason) {
  if (!std::exchange(suspended_, true)) {
    MOE_LOG(kError) << reason.message() << "; ending " << requests_.size() << " requests";
    const std::lock_guard lock(accept_mutex_);
    no_ranks_ = reason;
  }
  requests_.FailAll(reason, clock_());
  EndRebalances();
}

void EngineLoop::RebalanceIfDue() {
  if (options_.rebalance_interval <= 0 || clock_() - rebalanced_ < options_.rebalance_interval) return;
  StartRebalance(-1, [](const Status& status) {
    if (!status.ok()) {
      MOE_LOG(kWarning) << "rebalancing: " << status.message();
    }
  });
}

void EngineLoop::StartRebalance(int64_t redundant_experts, std::function<void(const Status&)> done) {
  if (faulted_) return done(absl::UnavailableError("the engine has stopped"));
  rebalanced_ = clock_();
  std::vector<std::vector<uint64_t>> loads = stats_.ExpertTokens();
  std::vector<std::vector<uint64_t>> before = std::exchange(rebalanced_tokens_, loads);
  before.resize(loads.size());
  // What came since the last time tells more of what will come; without any, all there is.
  std::vector<std::vector<uint64_t>> recent = loads;
  uint64_t rows = 0;
  for (size_t l = 0; l < loads.size(); ++l) {
    before[l].resize(loads[l].size());
    for (size_t e = 0; e < loads[l].size(); ++e) rows += recent[l][e] -= before[l][e];
  }
  link_.Rebalance(rows > 0 ? recent : loads, redundant_experts < 0 ? options_.redundant_experts : redundant_experts,
                  [ended = ended_rebalances_, done = std::move(done)](const Status& status) {
                    if (ended->closed) return done(status);
                    ended->list.emplace_back(done, status);
                  });
}

void EngineLoop::EndRebalances() {
  for (const auto& [done, status] : std::exchange(ended_rebalances_->list, {})) done(status);
}

void EngineLoop::RunStep() {
  const double begin = clock_();
  MOE_CHECK(scheduler_.Plan(plan_)) << requests_.size() << " requests without a sequence";
  requests_.NoteStarted(begin);
  PublishGauges();
  StatusOr<StepResult> result = link_.Step(plan_);
  const double end = clock_();
  if (result.ok()) scheduler_.ObserveStep(end - begin);
  Status status = result.ok() ? requests_.CheckResult(plan_, *result) : result.status();
  if (absl::IsUnavailable(status) && ++failed_steps_ <= kMostFailedSteps) {
    MOE_LOG(kWarning) << "step " << plan_.step << " is abandoned: " << status.message();
    scheduler_.AbandonStep();
    return;
  }
  if (!status.ok()) {
    Fault(status);
    return;
  }
  failed_steps_ = 0;
  // Stops and cancellations that came during the step take effect before its tokens are handed out and counted.
  HandleMessages();
  for (size_t r = 0; r < plan_.ranks.size(); ++r) {
    for (size_t i = 0; i < plan_.ranks[r].slices.size(); ++i) {
      scheduler_.Accept(plan_.ranks[r].slices[i].id, result->ranks[r].slices[i].accepted());
    }
  }
  scheduler_.Commit();
  requests_.TakeResult(plan_, *result, end, end - begin);
  link_.Recycle(*std::move(result));
  progress_ = end;
}

void EngineLoop::Fault(const Status& reason) {
  const Status status = absl::UnavailableError(Cat("the inference step failed: ", reason.message()));
  MOE_LOG(kError) << status.message() << "; ending " << requests_.size() << " requests";
  {
    std::lock_guard lock(accept_mutex_);
    fault_ = status;
    refuse_ = status;
  }
  scheduler_.AbandonStep();
  faulted_ = true;
  ended_rebalances_->closed = true;
  EndRebalances();
  requests_.FailAll(status, clock_());
}

void EngineLoop::PublishGauges() {
  stats_.Update(scheduler_);
  unfinished_ -= requests_.num_ended() - std::exchange(published_ended_, requests_.num_ended());
  queued_ -= requests_.num_left_queue() - std::exchange(published_left_queue_, requests_.num_left_queue());
}

}  // namespace moe
