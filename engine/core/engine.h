// Engine: the public API of everything below the server. Create loads and packs a model and starts the engine loop;
// Submit hands a request to it.
//
//   request → Submit → inbox → EngineLoop (one thread: Scheduler) → StepPlan → RankWorker(s) → StepResult →
//   ResponseSink
#ifndef MOE_ENGINE_CORE_ENGINE_H_
#define MOE_ENGINE_CORE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/core/engine_options.h"
#include "engine/core/rank_transport.h"
#include "engine/core/stats.h"
#include "engine/schedule/request.h"
#include "parallel/base/status.h"

namespace moe {

struct LoadedModel;

// Progress of loading, for logs, /readyz and health. May be called from several threads.
struct LoadProgress {
  std::string stage;  // "packing weights"
  double fraction = 0;
};
using ProgressFn = std::function<void(const LoadProgress&)>;

class Engine {
 public:
  // Blocking; the weights are packed when it returns, and one warm-up step has run. With a `transport` the ranks are
  // the processes behind it, as many as options.expert_parallel_size: waits until all have come; without one they are
  // threads of this process.
  static StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<LoadedModel> model, const EngineOptions& options,
                                                  const ProgressFn& progress,
                                                  std::unique_ptr<RankTransport> transport = nullptr);
  virtual ~Engine() = default;  // cancels what runs, joins the threads

  virtual const LoadedModel& model() const = 0;
  virtual const EngineInfo& info() const = 0;

  // Thread-safe. Checks the request against the model and the limits: INVALID_ARGUMENT naming the field;
  // RESOURCE_EXHAUSTED when the queue is full; UNAVAILABLE while draining or after a fault. On success the sink will
  // get exactly one OnDone. Returns the handle for Cancel and StopChoice.
  virtual StatusOr<uint64_t> Submit(Request request, std::shared_ptr<ResponseSink> sink) = 0;

  // Ends a request soon, at the next step border at the latest: the sink gets OnDone(CANCELLED). Unknown or finished
  // handles are ignored. Thread-safe.
  virtual void Cancel(uint64_t handle) = 0;

  // Ends a request with status OK and finish reason kCancelled on its unfinished choices (Operations.Abort, drains).
  virtual void Abort(uint64_t handle) = 0;

  // The text side found a stop string: no further tokens of this choice are wanted. Its last chunk comes with kStop.
  virtual void StopChoice(uint64_t handle, uint32_t choice) = 0;

  // From now on Submit answers UNAVAILABLE; what runs goes on.
  virtual void StopAccepting() = 0;
  // Requests waiting or running.
  virtual int64_t Unfinished() const = 0;
  // Aborts everything that is left (as Abort).
  virtual void AbortAll() = 0;

  // Drops cached prefixes that no request uses; returns the number of blocks freed.
  virtual int64_t FlushPrefixCache() = 0;

  // Evens the load of the ranks out, with so many replicas of a layer beyond one of each expert (negative: the
  // option's). Requests go on. `done` is called on the engine's thread when the new placement is in force, or with why
  // it will not be: INVALID (more replicas than ranks can hold), RESOURCE_EXHAUSTED, UNIMPLEMENTED (one rank),
  // UNAVAILABLE.
  virtual void Rebalance(int64_t redundant_experts, std::function<void(const Status&)> done) = 0;

  // A consistent copy; never waits for a step.
  virtual EngineStats Stats() const = 0;

  // OK while the loop makes progress: UNAVAILABLE when work waits and no step has finished for `limit_seconds`, or the
  // loop stopped on a fault.
  virtual Status Health(double limit_seconds) const = 0;
  // Not healthy because too few ranks are left, but requests still wait for others to come (back).
  virtual bool WaitsForRanks() const { return false; }
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_ENGINE_H_
