// GenerateCall: one generation from its arrival to its end, without gRPC: encodes the prompt, submits it, turns chunks
// into deltas and feeds them to an outlet (a gRPC reactor, or a test).
//
//   Start → [prompt pool] encode → Engine::Submit → OnOutput [engine thread] → [output pool] text → CallOutlet::Send
//
// One message is in flight at most; what comes meanwhile is merged into few more and waits. A client that does not read
// is cut off with RESOURCE_EXHAUSTED, by StreamLimits: when it has taken nothing for backlog_seconds and more than
// max_backlog_bytes wait, or for stall_seconds whatever waits. One that pauses, or reads more slowly than its text is
// made, may fall behind until hard_backlog_bytes wait (or two positions of every choice, where those with their
// log-probabilities are larger), or total_backlog_bytes for all streams together. Client gone, deadline, abort, stop
// and errors all end in CloseLocked: once.
#ifndef MOE_SERVER_GENERATE_CALL_H_
#define MOE_SERVER_GENERATE_CALL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/delta.h"
#include "server/generate_spec.h"
#include "server/output_assembler.h"
#include "server/server_counters.h"
#include "server/server_options.h"

namespace moe {

class WorkPool;
struct ServedModel;

// Where a call's results go. Called with the call's mutex held: must not call back into the call.
class CallOutlet {
 public:
  virtual ~CallOutlet() = default;
  // Starts sending; GenerateCall::OnSent follows. Only for streams.
  virtual void Send(Delta delta, const CallUsage& usage) = 0;
  // The end, exactly once, perhaps while a message is still in flight. `rest`: all of a unary call's deltas, one a
  // choice.
  virtual void Finish(const Status& status, std::vector<Delta> rest, const CallUsage& usage) = 0;
  // The client does not even take the end: break the connection's stream.
  virtual void Break() = 0;
};

class GenerateCall final : public ResponseSink, public std::enable_shared_from_this<GenerateCall> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Environment {  // all outlive the call
    ServedModel* model;
    WorkPool* prompt_pool;
    WorkPool* output_pool;
    ServerCounters* counters;
    StreamLimits limits;
    std::atomic<int64_t>* stream_backlog;  // bytes that wait in all streams
    size_t max_waiting_prompts;
    int64_t max_message_bytes;
  };

  // `outlet` lives until Detach.
  GenerateCall(const Environment& environment, Method method, GenerateSpec spec, CallOutlet* outlet);
  ~GenerateCall() override;

  const std::string& id() const { return id_; }

  void Start();
  // The message given to Send has left (or never will: `ok` false, then the client is gone).
  void OnSent(bool ok, bool deadline_passed);
  // The client cancelled, vanished or its deadline passed.
  void ClientGone(bool deadline_passed);
  // Ends with OK and kCancelled on the unfinished choices. True if the call was still going.
  bool Abort();
  // Cuts off a client that does not read; called several times a second.
  void CheckStall(Clock::time_point now);
  // The outlet is about to die.
  void Detach();

  // ResponseSink, on the engine's thread.
  void OnOutput(OutputChunk chunk) override;
  void OnDone(const Status& status, const RequestTimes& times) override;

 private:
  bool streaming() const { return method_ == Method::kGenerateStream; }
  void EncodeAndSubmit();
  Status Encode();
  Status CheckAnswerSize(int64_t prompt_tokens, int64_t context) const;
  void ScheduleProcessing(std::unique_lock<std::mutex> lock);
  void Process();
  void TellEngine(const std::vector<uint32_t>& stopped_choices);

  // These hold mutex_.
  void MergeLocked(Delta delta);
  void PumpLocked();
  void SendNextLocked();
  bool DropIfSlowLocked();
  bool BacklogTooLargeLocked() const;
  bool StalledLocked(Clock::time_point now) const;
  void SetBacklogLocked(int64_t bytes);
  void CloseLocked(const Status& status);
  void EndEarlyLocked(CancelCause cause, const Status& status);
  // After an early end, without the mutex: the engine is told to forget the request.
  void CancelInEngine();

  const Environment environment_;
  const Method method_;
  const std::string id_;
  const int64_t num_choices_;
  GenerateSpec spec_;                           // until it is submitted
  std::unique_ptr<OutputAssembler> assembler_;  // made before Submit; then Process alone uses it, one run at a time

  std::mutex mutex_;  // guards all below
  CallOutlet* outlet_;
  bool closed_ = false;  // Finish was called
  bool slow_ = false;    // … because the client does not read
  bool broken_ = false;
  Clock::time_point closed_at_;
  std::optional<uint64_t> handle_;  // of the engine
  bool abort_wanted_ = false;
  std::vector<uint32_t> early_stops_;  // stop strings found before the handle was known

  std::vector<OutputChunk> inbox_;
  std::optional<Status> done_;  // OnDone's, not yet processed
  RequestTimes done_times_;
  bool processing_ = false;  // a Process job is scheduled or runs

  struct Waiting {
    Delta delta;
    int64_t bytes;
  };
  std::deque<Waiting> outbox_;  // unary: one a choice
  int64_t outbox_bytes_ = 0;
  bool all_finished_ = false;
  std::optional<Status> result_;  // everything is in the outbox
  CallUsage usage_;
  bool sending_ = false;
  Clock::time_point sending_since_;
  int64_t largest_token_ = 0;  // bytes of a token with its log-probabilities
};

}  // namespace moe

#endif  // MOE_SERVER_GENERATE_CALL_H_
