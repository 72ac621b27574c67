// LoopStats: what the engine loop counts, behind one mutex that is held for the bookkeeping only, never during a step.
// Counters cannot go down: a negative difference is taken as 0 and logged once.
#ifndef MOE_ENGINE_CORE_LOOP_STATS_H_
#define MOE_ENGINE_CORE_LOOP_STATS_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/core/stats.h"
#include "engine/schedule/request.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step_plan.h"
#include "loaders/model_spec.h"

namespace moe {

// Tokens of the last ten seconds, in buckets of one second; the one that runs counts in part.
class TokenRate {
 public:
  void Add(double now, int64_t tokens);
  double PerSecond(double now) const;

 private:
  static constexpr int64_t kSeconds = 10;
  struct Bucket {
    int64_t second = -1;
    int64_t tokens = 0;
  };
  std::array<Bucket, kSeconds + 1> buckets_;
};

class LoopStats {
 public:
  LoopStats(const ModelSpec& spec, int num_ranks);

  // What one finished step adds. The vectors are the caller's to reuse.
  struct StepCounts {
    double now = 0;
    double seconds = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;         // rows computed
    int64_t prompt_tokens = 0;  // of them, below prompt_len
    int64_t generated = 0;      // handed to sinks
    std::vector<double> inter_token_seconds;
    std::vector<double> first_token_seconds;
  };
  void AddStep(const StepCounts& counts, const StepResult& result);

  void AddStarted(double queue_seconds);
  void AddCachedPromptTokens(int64_t tokens);
  void AddFinish(FinishReason reason);
  void AddRequestOk(double seconds, int64_t prompt_tokens, int64_t generated_tokens);
  void AddRequestCancelled();
  void AddRequestFailed();
  void AddRejectedQueueFull();

  // Gauges and the scheduler's own counters.
  void Update(const Scheduler& scheduler);
  void SetPlacements(std::shared_ptr<const std::vector<ExpertPlacement>> placements);

  // [MoE layers][experts] rows so far.
  std::vector<std::vector<uint64_t>> ExpertTokens() const;

  EngineStats Copy(double now) const;

 private:
  void AddExperts(const StepResult& result);
  void AddExchange(const StepResult& result);

  mutable std::mutex mutex_;
  EngineStats stats_;  // guarded by mutex_, like the rest
  TokenRate rate_;
  size_t num_experts_ = 0;  // over all layers
  bool warned_ = false;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_LOOP_STATS_H_
