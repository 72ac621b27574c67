// ServerCore: what all services share: the model, the pools, the calls under way and the counters. Outlives the gRPC
// server and its services, so at its end every call is closed: the pools end what they do, then the engine goes (a
// closed call ignores what an engine still has to say).
#ifndef MOE_SERVER_SERVER_CORE_H_
#define MOE_SERVER_SERVER_CORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/call_registry.h"
#include "server/generate_call.h"
#include "server/model_host.h"
#include "server/server_counters.h"
#include "server/server_options.h"
#include "server/work_pool.h"

namespace moe {

class ServerCore {
 public:
  // `name`: the served model's.
  ServerCore(std::string name, const ServerOptions& options);

  const RequestLimits& limits() const { return limits_; }
  ServerCounters& counters() { return counters_; }
  const ServerCounters& counters() const { return counters_; }
  CallRegistry& calls() { return calls_; }
  WorkPool& prompt_pool() { return prompt_pool_; }
  ModelHost& host() { return host_; }
  const ModelHost& host() const { return host_; }
  size_t max_waiting_prompts() const { return max_waiting_prompts_; }

  // Bytes made for streams that wait because clients do not read.
  int64_t stream_backlog() const { return stream_backlog_; }

  GenerateCall::Environment CallEnvironment(ServedModel* model);

  // Refuses new work, waits for the generations under way; after `deadline_seconds` (0: never) ends the rest as Abort
  // does. `done(finished, cancelled)` comes on the housekeeping thread, or at once when nothing runs.
  void Drain(double deadline_seconds, std::function<void(uint32_t, uint32_t)> done);

  // Called several times a second by the housekeeping thread: watches the engine, stalled clients and drains.
  void Tick();

 private:
  struct PendingDrain {
    uint32_t at_start = 0;
    uint32_t cancelled = 0;
    bool has_deadline = false;
    std::chrono::steady_clock::time_point deadline;
    std::function<void(uint32_t, uint32_t)> done;
  };

  void WatchEngine();
  void CheckDrains();

  const RequestLimits limits_;
  const StreamLimits stream_limits_;
  const size_t max_waiting_prompts_;
  const int64_t max_message_bytes_;
  std::atomic<int64_t> stream_backlog_{0};  // bytes that wait for clients to read them
  ServerCounters counters_;
  CallRegistry calls_;
  ModelHost host_;
  WorkPool output_pool_;
  WorkPool prompt_pool_;

  std::mutex drains_mutex_;
  std::vector<PendingDrain> drains_;  // guarded by drains_mutex_
  bool engine_was_healthy_ = true;    // of the housekeeping thread
};

}  // namespace moe

#endif  // MOE_SERVER_SERVER_CORE_H_
