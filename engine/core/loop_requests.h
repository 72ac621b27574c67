// LoopRequests: the requests that the engine loop knows, and what step results and messages do to them. Every request
// ends in one place (End), so its sink gets OnDone once, its blocks go back once and counters move once. Loop thread
// only.
#ifndef MOE_ENGINE_CORE_LOOP_REQUESTS_H_
#define MOE_ENGINE_CORE_LOOP_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/core/loop_stats.h"
#include "engine/schedule/scheduler.h"

namespace moe {

class LoopRequests {
 public:
  // `scheduler` and `stats` outlive this.
  LoopRequests(Scheduler& scheduler, LoopStats& stats) : scheduler_(&scheduler), stats_(&stats) {}

  // `now` in the following: seconds of the loop's clock.
  void Submit(uint64_t handle, std::shared_ptr<const Request> request, std::shared_ptr<ResponseSink> sink,
              double submitted);
  // Ends with `status`; nothing more is sent. Unknown handles are ignored here and below.
  void Fail(uint64_t handle, const Status& status, double now);
  void FailAll(const Status& status, double now);
  // Ends OK; unfinished choices get finish reason kCancelled.
  void Abort(uint64_t handle, double now);
  void AbortAll(double now);
  void StopChoice(uint64_t handle, uint32_t choice, double now);

  // After Scheduler::Plan: notes who waits no longer.
  void NoteStarted(double now);
  // Checks that the result answers the plan; an error names what is wrong.
  Status CheckResult(const StepPlan& plan, const StepResult& result) const;
  // REQUIRES: CheckResult was OK and Scheduler::Commit was called. Moves what it needs out of `result`.
  void TakeResult(const StepPlan& plan, StepResult& result, double now, double step_seconds);

  int64_t size() const { return static_cast<int64_t>(requests_.size()); }
  // Requests that have ended, and those that have either started or ended; they only grow.
  int64_t num_ended() const { return num_ended_; }
  int64_t num_left_queue() const { return num_left_queue_; }

 private:
  struct Choice {
    SequenceId sequence = 0;
    bool finished = false;
    int64_t generated = 0;
    double last_token_time = 0;
    std::vector<TokenInfo> prompt;    // with prompt_logprobs: [prompt_len] once the first slice is in
    std::vector<int32_t> expert_ids;  // rows not sent yet
    uint32_t expert_rows = 0;
    int64_t expert_positions = 0;  // positions whose rows were taken; a recomputed one is not taken again
  };
  struct State {
    uint64_t handle = 0;
    std::shared_ptr<const Request> request;
    std::shared_ptr<ResponseSink> sink;
    double submitted = 0;
    bool started = false;
    bool has_token = false;
    RequestTimes times;
    int64_t generated = 0;
    int64_t max_new_tokens = 0;
    std::vector<Choice> choices;
    int64_t unfinished = 0;
  };
  struct Owner {
    State* state = nullptr;
    uint32_t choice = 0;
  };

  void TakeSlice(const SlicePlan& plan, SliceResult& result, double now);
  static FinishReason WhyFinished(const State& state, const Choice& choice, int32_t token);
  // The next chunk of a choice, with everything that is pending.
  OutputChunk TakeChunk(State& state, uint32_t choice) const;
  // Marks it finished and frees its sequence; the caller sends the last chunk and then calls EndIfFinished.
  void FinishChoice(State& state, uint32_t choice, FinishReason reason);
  void EndIfFinished(State& state, double now);
  void End(State& state, const Status& status, double now);

  Scheduler* scheduler_;
  LoopStats* stats_;
  std::unordered_map<uint64_t, std::unique_ptr<State>> requests_;  // by handle
  std::unordered_map<SequenceId, Owner> owners_;
  int64_t num_ended_ = 0;
  int64_t num_left_queue_ = 0;
  LoopStats::StepCounts counts_;  // of the step being taken
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_LOOP_REQUESTS_H_
