// EngineLoop: takes messages, lets the scheduler plan a step, has the ranks run it, hands the results out. All
// scheduling state has this one owner and no locks; what crosses threads is a message or an atomic count.
//
// Start() runs it on a thread of its own. Tests call RunOnce() instead: with the same clock, messages and RankLink
// every run is the same.
//
// When a rank is lost the step that runs is abandoned: no sequence has advanced. The link forms a new group of ranks,
// the lost one's sequences are computed anew elsewhere from the tokens they have, and clients see a pause. When for
// some time there are no ranks that could go on, every unfinished request ends with UNAVAILABLE and later ones are
// refused until there are. When a step fails for another reason that is for good.
#ifndef MOE_ENGINE_CORE_ENGINE_LOOP_H_
#define MOE_ENGINE_CORE_ENGINE_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/core/loop_inbox.h"
#include "engine/core/loop_requests.h"
#include "engine/core/loop_stats.h"
#include "engine/core/rank_link.h"
#include "engine/core/stats.h"
#include "engine/schedule/scheduler.h"
#include "loaders/model_spec.h"

namespace moe {

struct EngineLoopOptions {
  SchedulerOptions scheduler;
  int64_t max_queue = 1024;       // requests of which nothing has started; more: RESOURCE_EXHAUSTED
  double rebalance_interval = 0;  // seconds between two rebalancings; 0: only when asked for
  int64_t redundant_experts = 0;  // of a layer, in those
};

class EngineLoop {
 public:
  using Clock = std::function<double()>;  // seconds, never back; called from any thread

  // `spec`, `inbox` and `link` outlive this.
  EngineLoop(const ModelSpec& spec, const EngineLoopOptions& options, LoopInbox& inbox, RankLink& link, Clock clock);
  ~EngineLoop();  // Stop()

  // std::chrono::steady_clock.
  static Clock SteadyClock();

  // --- Any thread. Contracts as in Engine. ---
  StatusOr<uint64_t> Submit(Request request, std::shared_ptr<ResponseSink> sink);
  void Cancel(uint64_t handle);
  void Abort(uint64_t handle);
  void StopChoice(uint64_t handle, uint32_t choice);
  void StopAccepting();
  void AbortAll();
  // Calls `done` with the number of freed blocks at the next step border, on the loop's thread.
  void FlushPrefixCache(std::function<void(int64_t)> done);
  // Waits for it. REQUIRES: the thread runs or the loop was stopped; not called from a sink.
  int64_t FlushPrefixCache();
  // Evens out the load of the ranks with so many replicas a layer (negative: the option's). `done` is called on the
  // loop's thread when the new placement is in force, or with why it will not be.
  void Rebalance(int64_t redundant_experts, std::function<void(const Status&)> done);
  int64_t Unfinished() const { return unfinished_.load(std::memory_order_acquire); }
  EngineStats Stats() const;
  Status Health(double limit_seconds) const;
  bool WaitsForRanks() const;  // Engine's

  // --- The owner. ---
  void Start();
  // Ends what is left with CANCELLED, then the thread. Later Submits are refused. Idempotent.
  void Stop();

  // --- The loop's thread, or a test instead of it. ---
  // Handles what has come and runs at most one step; false when there was nothing to do.
  bool RunOnce();
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  void Run();
  bool HandleMessages();
  void Handle(LoopMessage& message);
  // Brings the group of ranks into order; false: there is none.
  bool SettleRanks();
  void Suspend(const Status& reason);
  void RebalanceIfDue();
  void StartRebalance(int64_t redundant_experts, std::function<void(const Status&)> done);
  // Calls back those who wait for a rebalancing that has ended: the stats show its placement by now.
  void EndRebalances();
  void RunStep();
  void Fault(const Status& reason);
  void PublishGauges();

  const ModelSpec& spec_;
  const EngineLoopOptions options_;
  LoopInbox& inbox_;
  RankLink& link_;
  const Clock clock_;

  Scheduler scheduler_;
  LoopStats stats_;
  LoopRequests requests_;
  StepPlan plan_;
  std::vector<LoopMessage> messages_;
  bool faulted_ = false;
  bool suspended_ = false;  // no ranks
  int failed_steps_ = 0;    // in a row
  // Rebalancings that the link has ended. Shared: the link may end one after this is gone.
  struct EndedRebalances {
    bool closed = false;  // nobody will look: call back at once
    std::vector<std::pair<std::function<void(const Status&)>, Status>> list;
  };
  std::shared_ptr<EndedRebalances> ended_rebalances_ = std::make_shared<EndedRebalances>();
  double rebalanced_ = 0;                                 // when the last rebalancing began
  std::vector<std::vector<uint64_t>> rebalanced_tokens_;  // [MoE layers][experts] rows until then
  int64_t published_ended_ = 0;                           // of requests_.num_ended(), as far as unfinished_ knows
  int64_t published_left_queue_ = 0;                      // likewise for queued_

  // Requests that Submit has taken and the loop has not yet ended, queued_ of them without any start.
  std::atomic<int64_t> unfinished_{0};
  std::atomic<int64_t> queued_{0};
  std::atomic<int64_t> inbox_choices_{0};  // submitted, not yet seen by the scheduler
  std::atomic<double> progress_{0};        // when a step last finished, or work came to an idle loop
  std::atomic<bool> stop_{false};
  mutable std::atomic<bool> stall_logged_{false};

  mutable std::mutex heartbeat_mutex_;
  mutable uint64_t last_heartbeat_ = 0;  // guarded by heartbeat_mutex_: the link's, as Health saw it last
  mutable double heartbeat_time_ = 0;    // guarded by heartbeat_mutex_: when Health saw it grow

  mutable std::mutex accept_mutex_;
  Status refuse_;             // guarded by accept_mutex_: not OK: Submit answers it
  Status fault_;              // guarded by accept_mutex_
  Status no_ranks_;           // guarded by accept_mutex_: not OK while suspended
  uint64_t next_handle_ = 1;  // guarded by accept_mutex_
  bool closed_ = false;       // guarded by accept_mutex_: nobody reads the inbox any more

  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_ENGINE_LOOP_H_
