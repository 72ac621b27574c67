// RankCall: one Join call at the front, from the wait for a caller to the end of its last operation. A state machine
// over gRPC's asynchronous interface, on a completion queue of its own: the callback interface would share its few
// threads with the clients' calls, and a burst of long prompts could then hold heartbeats up until ranks look dead.
//
//   waiting ── a caller ──▶ new ── RankHello ──▶ joined ── Close, silence, broken message, end of stream ──▶ closed
//
// Operations that are under way keep it alive after that; the last one hands it back (RankCallHost::Gone).
#ifndef MOE_SERVER_RANKS_RANK_CALL_H_
#define MOE_SERVER_RANKS_RANK_CALL_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/core/rank_transport.h"
#include "moe/v1/worker.grpc.pb.h"
#include "server/ranks/rank_fragments.h"

namespace moe {

// What calls need of their transport. Called on threads of the completion queue; those marked * while the call is
// locked, so they must not call back.
class RankCallHost {
 public:
  virtual ~RankCallHost() = default;
  virtual double Now() const = 0;                                                            // *
  virtual grpc::Status Admit(const grpc::ServerContext& context, std::string* process) = 0;  // *
  virtual bool PushEvent(RankTransport::Event event) = 0;  // * true: Wake when unlocked
  virtual void AddProgress(uint64_t more) = 0;             // *
  // A process that said RankFailed instead of RankHello.
  virtual void FailedBeforeHello(const std::string& process, const Status& status) = 0;
  virtual void EndProcess(const std::string& process, double after_seconds) = 0;
  virtual void Wake() = 0;
  virtual void Accepted() = 0;  // time to wait for the next caller
  virtual void Gone(RankTransport::LinkId id) = 0;
};

class RankCall : public std::enable_shared_from_this<RankCall> {
 public:
  struct Limits {
    double heartbeat_timeout = 1.0;  // seconds
    double hello_timeout = 10;
  };

  // `host` outlives it.
  RankCall(RankTransport::LinkId id, RankCallHost* host, const Limits& limits);

  // Waits for a caller.
  void Listen(v1::RankControl::AsyncService* service, grpc::ServerCompletionQueue* queue);

  // What the queue's threads get from it, and hand over here.
  struct Tag {
    RankCall* call;
    void (RankCall::*done)(bool ok);
  };
  static void Run(void* tag, bool ok);

  RankTransport::LinkId id() const { return id_; }
  // The name that the front gave to a process that it started; empty for others. REQUIRES: it has said something.
  const std::string& process() const { return process_; }

  void Send(const RankOrder& order);
  // No event comes after it. Orders that say goodbye (RefuseRank, StopRank) still go out when they are the last.
  void Close(const Status& why);
  // From the monitor, often. `shift`: seconds for which this process did not run since the last time.
  void Check(double shift);
  // Cancels what is left. Any state.
  void Cancel();

 private:
  enum class State { kWaiting, kNew, kJoined, kClosed };
  // What is done once the lock is gone.
  struct After {
    bool wake = false;
    bool accepted = false;
    bool gone = false;
    std::optional<double> end_process;  // seconds from now
    std::optional<Status> failed;       // before its hello
  };

  void OnAccept(bool ok);
  void OnRead(bool ok);
  void OnWrite(bool ok);
  void OnFinish(bool ok);

  // All below: mutex_ is held.
  void Read();
  void Write();
  void Take(const v1::RankReportMessage& message, After* after);
  void TakeWhole(const v1::RankReportMessage& message, After* after);
  void TakeFirst(RankReport report, After* after);
  // The end that comes from this side: with an event if it had joined.
  void Fail(const Status& why, After* after);
  void End(const Status& why, After* after);
  void Finish();
  void Do(After after);  // unlocked

  const RankTransport::LinkId id_;
  RankCallHost* const host_;
  const Limits limits_;
  Tag accept_tag_{this, &RankCall::OnAccept};
  Tag read_tag_{this, &RankCall::OnRead};
  Tag write_tag_{this, &RankCall::OnWrite};
  Tag finish_tag_{this, &RankCall::OnFinish};

  mutable std::mutex mutex_;  // guards all below; the stream's operations under way do not need it
  State state_ = State::kWaiting;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<v1::RankOrderMessage, v1::RankReportMessage> stream_{&context_};
  v1::RankReportMessage incoming_;
  FragmentJoiner<v1::RankReportMessage> joiner_;
  std::deque<v1::RankOrderMessage> outbox_;
  int pending_ = 0;        // operations under way
  bool writing_ = false;   // one of them
  bool greeting_ = false;  // what is being written is the initial metadata: small, and ends by itself
  bool finish_wanted_ = false;
  bool finishing_ = false;
  bool said_goodbye_ = false;  // the last order was one
  grpc::Status finish_status_;
  std::string process_;
  double accepted_at_ = 0;
  double last_sign_ = 0;  // of life
  double closed_at_ = 0;
  uint64_t progress_ = 0;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_CALL_H_
