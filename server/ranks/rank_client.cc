#include "server/ranks/rank_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "moe/v1/worker.grpc.pb.h"
#include "parallel/base/log.h"
#include "server/ranks/rank_fragments.h"
#include "server/ranks/rank_mapping.h"

namespace moe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kKeepaliveMs = 1000;
constexpr int kKeepaliveTimeoutMs = 2000;
constexpr milliseconds kAttempt{2000};
constexpr milliseconds kPause{200};
constexpr milliseconds kGoodbye{1000};

std::string HostOf(const std::string& target) {
  std::string host = target.substr(0, target.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

std::shared_ptr<grpc::Channel> OpenRankChannel(const RankClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxRankGrpcMessage);
  arguments.SetMaxSendMessageSize(kMaxRankGrpcMessage);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // another try is a new connection
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);  // also how long an attempt may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  if (!IsLoopbackHost(HostOf(options.target))) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls.given()) {
    credentials = grpc::SslCredentials({options.tls.ca, options.tls.key, options.tls.certificate});
  }
  return grpc::CreateCustomChannel(options.target, credentials, arguments);
}

class GrpcRankPortImpl final : public GrpcRankPort {
 public:
  explicit GrpcRankPortImpl(const RankClientOptions& options)
      : options_(options),
        beat_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.heartbeat_seconds))) {}

  ~GrpcRankPortImpl() override {
    if (stream_ == nullptr) return;
    if (writer_.joinable()) {
      Close();
      writer_.join();
    }
    if (!finished_) ReadToEnd();
    if (limit_.joinable()) limit_.join();
  }

  // One attempt, until then.
  grpc::Status Join(Clock::time_point until) {
    channel_ = OpenRankChannel(options_);
    const auto left = std::max<Clock::duration>(until - Clock::now(), milliseconds(1));
    const bool connected = channel_->WaitForConnected(
        std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
    // A call that fails says why there is no connection.
    if (!connected) context_.set_deadline(std::chrono::system_clock::now() + kPause);
    if (!options_.secret.empty()) context_.AddMetadata(kRankSecretKey, options_.secret);
    if (!options_.process.empty()) context_.AddMetadata(kRankProcessKey, options_.process);
    stub_ = v1::RankControl::NewStub(channel_);
    stream_ = stub_->Join(&context_);
    stream_->WaitForInitialMetadata();
    if (!connected || context_.GetServerInitialMetadata().count(kRankJoinedKey) == 0) {
      const grpc::Status status = ReadToEnd();
      if (!connected) return {grpc::StatusCode::UNAVAILABLE, status.error_message()};
      return status.ok() ? grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "it is not the control port of a front")
                         : status;
    }
    writer_ = std::thread([this] { WriteLoop(); });
    return grpc::Status::OK;
  }

  void SetProgress(std::function<uint64_t()> progress) override {
    std::lock_guard lock(progress_mutex_);
    progress_ = std::move(progress);
  }

  void Report(RankReport report) override {
    std::deque<v1::RankReportMessage> pieces;
    if (const Status cut = AppendCut(ToProto(report), &pieces); !cut.ok()) {
      auto* done = std::get_if<RankStepDone>(&report);
      if (done == nullptr) {
        MOE_LOG(kError) << "cannot tell the front: " << cut.message();
        return Close();
      }
      (void)AppendCut(ToProto(RankReport(RankStepDone{done->generation, done->step, cut, -1, {}})), &pieces);
    }
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      outbox_.insert(outbox_.end(), std::make_move_iterator(pieces.begin()), std::make_move_iterator(pieces.end()));
    }
    changed_.notify_all();
  }

  Status Run(const std::function<void(RankOrder)>& take) override {
    v1::RankOrderMessage message;
    FragmentJoiner<v1::RankOrderMessage> joiner;
    while (stream_->Read(&message)) {
      StatusOr<RankOrder> order = InvalidError("");
      if (message.has_fragment()) {
        auto whole = joiner.Add(message);
        if (whole.ok() && !whole->has_value()) continue;
        order = whole.ok() ? FromProto(**whole) : StatusOr<RankOrder>(whole.status());
      } else {
        order = FromProto(message);
      }
      if (!order.ok()) {
        Close();
        return Annotate(order.status(), "from the front: ");
      }
      const bool stop = std::holds_alternative<StopRank>(*order);
      take(*std::move(order));
      if (stop) return Status();
    }
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    writer_.join();
    const grpc::Status status = ReadToEnd();
    std::lock_guard lock(mutex_);
    if (closing_) return absl::CancelledError("closed on this side");
    if (status.ok()) return absl::UnavailableError("the front ended the connection");
    return {static_cast<absl::StatusCode>(status.error_code()), Cat("from the front: ", status.error_message())};
  }

  void Close() override {
    {
      std::lock_guard lock(mutex_);
      if (closing_ || finished_) return;
      closing_ = true;
      // Reports still go out, then the front ends the call. A front that does not gets no more than this.
      limit_ = std::thread([this] {
        std::unique_lock guard(mutex_);
        if (!changed_.wait_for(guard, kGoodbye, [&] { return finished_; })) context_.TryCancel();
      });
    }
    changed_.notify_all();
  }

 private:
  // The call's last two operations. By the thread of Run, or the destructor's.
  grpc::Status ReadToEnd() {
    v1::RankOrderMessage ignored;
    while (stream_->Read(&ignored)) {
    }
    grpc::Status status = stream_->Finish();
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
    }
    changed_.notify_all();
    return status;
  }

  v1::RankReportMessage Heartbeat() {
    v1::RankReportMessage message;
    std::lock_guard lock(progress_mutex_);
    message.mutable_heartbeat()->set_progress(progress_ ? progress_() : 0);
    return message;
  }

  void WriteLoop() {
    std::unique_lock lock(mutex_);
    bool said_hello = false;
    Clock::time_point next_beat{};
    for (;;) {
      const auto ready = [&] { return ended_ || closing_ || !outbox_.empty(); };
      if (said_hello) {
        changed_.wait_until(lock, next_beat, ready);
      } else {
        changed_.wait(lock, ready);
      }
      if (ended_) break;
      v1::RankReportMessage message;
      if (const auto now = Clock::now(); said_hello && now >= next_beat) {
        next_beat = now + beat_;
        lock.unlock();
        message = Heartbeat();
      } else if (!outbox_.empty()) {
        if (!said_hello) next_beat = now + beat_;
        said_hello = true;
        message = std::move(outbox_.front());
        outbox_.pop_front();
        lock.unlock();
      } else if (closing_) {
        lock.unlock();
        stream_->WritesDone();
        lock.lock();
        break;
      } else {
        continue;
      }
      const bool written = stream_->Write(message);
      lock.lock();
      if (!written) ended_ = true;  // Run sees it, too
    }
    ended_ = true;
    outbox_.clear();
  }

  const RankClientOptions options_;
  const Clock::duration beat_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RankControl::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RankReportMessage, v1::RankOrderMessage>> stream_;
  std::thread writer_;
  std::thread limit_;  // of Close

  std::mutex progress_mutex_;
  std::function<uint64_t()> progress_;  // guarded by progress_mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::RankReportMessage> outbox_;  // guarded by mutex_, as all below
  bool ended_ = false;                        // nothing is written any more
  bool closing_ = false;                      // by Close
  bool finished_ = false;                     // the call is over
};

}  // namespace

StatusOr<std::unique_ptr<GrpcRankPort>> GrpcRankPort::Connect(const RankClientOptions& options) {
  const auto wait = std::chrono::duration<double>(options.join_timeout_seconds);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
  for (;;) {
    auto port = std::make_unique<GrpcRankPortImpl>(options);
    const grpc::Status status = port->Join(std::min(until, Clock::now() + kAttempt));
    if (status.ok()) return port;
    const bool may_come = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                          status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                          status.error_code() == grpc::StatusCode::CANCELLED;
    if (!may_come) {
      return Status(static_cast<absl::StatusCode>(status.error_code()),
                    Cat("the front at ", options.target, " does not admit this rank: ", status.error_message()));
    }
    if (Clock::now() + kPause >= until) {
      return absl::DeadlineExceededError(Cat("no front at ", options.target, " within ", options.join_timeout_seconds,
                                             " s: ", status.error_message()));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace moe
