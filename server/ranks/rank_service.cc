#include "server/ranks/rank_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/log.h"
#include "server/listen_address.h"
#include "server/ranks/rank_call.h"
#include "server/ranks/rank_events.h"
#include "server/ranks/stall_meter.h"
#include "server/server_options.h"

namespace moe {
namespace {

constexpr double kTickSeconds = 0.05;
constexpr double kStallSeconds = 0.1;
constexpr int kQueueThreads = 2;  // a long message that one of them parses holds no heartbeat up
constexpr int kKeepaliveMs = 10000;
constexpr int kMinPingIntervalMs = 500;
constexpr int kStreamsPerConnection = 16;
constexpr std::chrono::milliseconds kGoodbye{500};

class GrpcRankTransportImpl final : public GrpcRankTransport, public RankCallHost {
 public:
  explicit GrpcRankTransportImpl(const RankServiceOptions& options)
      : options_(options),
        child_secret_(options.children ? RandomSecret() : ""),
        gate_({options.secret, child_secret_, options.tls.given(), options.only_children}),
        limits_{options.heartbeat_timeout_seconds, options.hello_timeout_seconds} {}

  ~GrpcRankTransportImpl() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    {
      std::lock_guard lock(launcher_mutex_);
      if (launcher_ != nullptr) launcher_->LetAllGo();
    }
    if (server_ != nullptr) EndCalls();
    {
      // Destroyed outside of the lock, because its thread may wait for that.
      std::unique_ptr<RankLauncher> launcher;  // goes after the lock
      std::lock_guard lock(launcher_mutex_);
      launcher.swap(launcher_);
    }
    if (server_ == nullptr) return;
    monitor_.join();
    server_->Shutdown(std::chrono::system_clock::now());  // cancels; also the call that waits
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return calls_.empty(); });
    }
    queue_->Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }

  Status Listen() {
    MOE_RETURN_IF_ERROR(CheckListenAddress(options_.host, options_.port, "--rank-host"));
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxRankGrpcMessage);
    builder.SetMaxSendMessageSize(kMaxRankGrpcMessage);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
    builder.AddListeningPort(JoinHostPort(options_.host, options_.port), Credentials(), &port_);
    const bool own_child_port = options_.children && (options_.tls.given() || !IsLoopbackHost(options_.host));
    if (own_child_port) builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &child_port_);
    builder.RegisterService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0 || (own_child_port && child_port_ == 0)) {
      // Threads are not there yet: nobody else empties the queue.
      if (server_ != nullptr) server_->Shutdown();
      server_.reset();
      queue_->Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue_->Next(&tag, &ok)) {
      }
      return absl::AlreadyExistsError(
          Cat("cannot listen for ranks on ", JoinHostPort(options_.host, options_.port),
              options_.tls.given() ? "; the port is taken, or certificate and key do not fit together" : ""));
    }
    for (int i = 0; i < kQueueThreads; ++i) threads_.emplace_back([this] { Serve(); });
    monitor_ = std::thread([this] { Monitor(); });
    Accepted();
    return Status();
  }

  int port() const override { return port_; }
  std::string address() const override { return JoinHostPort(options_.host, port_); }
  std::string child_address() const override {
    return child_port_ != 0 ? JoinHostPort("127.0.0.1", child_port_) : address();
  }
  std::string child_secret() const override { return child_secret_; }

  Status Launch(RankLauncherOptions options) override {
    options.on_exit = [this](const std::string&, int code, const std::string& how) {
      if (code != kExitBadModel && code != kExitBadFlags) return true;
      return !FailStart(absl::FailedPreconditionError(Cat("a rank process of this host ", how, "; see its messages")));
    };
    std::lock_guard lock(launcher_mutex_);
    MOE_ASSIGN_OR_RETURN(launcher_, RankLauncher::Start(std::move(options)));
    return Status();
  }

  // --- RankTransport ---

  double Now() const override { return SteadySeconds(); }

  std::optional<Event> Wait(double until) override { return events_.Wait(until); }

  void Send(LinkId link, RankOrder order) override {
    const std::shared_ptr<RankCall> call = Find(link);
    if (call == nullptr) return;
    if (std::holds_alternative<StopRank>(order)) LetGo(call->process());
    call->Send(std::move(order));
  }

  void Close(LinkId link, const std::string& reason) override {
    if (const std::shared_ptr<RankCall> call = Find(link); call != nullptr) call->Close(absl::AbortedError(reason));
    events_.Forget(link);
  }

  void SetWake(std::function<void()> wake) override { events_.SetWake(std::move(wake)); }

  uint64_t Heartbeat() const override { return progress_; }

  // --- RankCallHost ---

  grpc::Status Admit(const grpc::ServerContext& context, std::string* process) override {
    if (const Status status = gate_.Check(context, process); !status.ok()) {
      return {grpc::StatusCode::UNAUTHENTICATED, std::string(status.message())};
    }
    if (open_ >= options_.max_links) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, Cat("this front has ", options_.max_links, " ranks already")};
    }
    if (!process->empty()) {
      std::lock_guard lock(launcher_mutex_);
      if (launcher_ != nullptr) launcher_->Arrived(*process);
    }
    return grpc::Status::OK;
  }

  bool PushEvent(Event event) override {
    if (const auto* report = std::get_if<RankReport>(&event.what);
        report != nullptr && std::holds_alternative<RankLoaded>(*report)) {
      any_loaded_ = true;
    }
    return events_.Push(std::move(event));
  }

  void AddProgress(uint64_t more) override { progress_ += more; }

  void FailedBeforeHello(const std::string& process, const Status& status) override {
    MOE_LOG(kWarning) << "a rank process failed before it joined: " << DescribeError(status);
    std::unique_lock lock(launcher_mutex_);
    const bool ours = launcher_ != nullptr && launcher_->Knows(process);
    lock.unlock();
    if (ours && FailStart(status)) LetGo(process);
  }

  void EndProcess(const std::string& process, double after_seconds) override {
    std::lock_guard lock(launcher_mutex_);
    if (launcher_ != nullptr) launcher_->Kill(process, after_seconds);
  }

  void Wake() override { events_.Wake(); }

  void Accepted() override {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    const LinkId id = ++last_id_;
    auto call = std::make_shared<RankCall>(id, this, limits_);
    calls_.emplace(id, call);
    call->Listen(&service_, queue_.get());
    CountOpen();
  }

  void Gone(LinkId id) override {
    {
      std::lock_guard lock(mutex_);
      calls_.erase(id);
      CountOpen();
    }
    changed_.notify_all();
  }

 private:
  std::shared_ptr<grpc::ServerCredentials> Credentials() const {
    if (!options_.tls.given()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    ssl.pem_root_certs = options_.tls.ca;
    ssl.pem_key_cert_pairs.push_back({options_.tls.key, options_.tls.certificate});
    return grpc::SslServerCredentials(ssl);
  }

  void Serve() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      // Calls are made with it held. gRPC orders that before this too, but not so that ThreadSanitizer could see it.
      { const std::lock_guard lock(mutex_); }
      RankCall::Run(tag, ok);
    }
  }

  void Monitor() {
    StallMeter stall(Now(), kTickSeconds, kStallSeconds);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      changed_.wait_for(lock, std::chrono::duration<double>(kTickSeconds), [&] { return stopping_; });
      lock.unlock();
      const double shift = stall.Tick(Now());
      for (const auto& call : Calls()) call->Check(shift);
      lock.lock();
    }
  }

  std::vector<std::shared_ptr<RankCall>> Calls() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<RankCall>> calls;
    calls.reserve(calls_.size());
    for (const auto& [id, call] : calls_) calls.push_back(call);
    return calls;
  }

  std::shared_ptr<RankCall> Find(LinkId id) const {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(id);
    return found == calls_.end() ? nullptr : found->second;
  }

  // Without the one that waits for a caller. (Those that are ending count until they have.)
  void CountOpen() { open_ = std::max<int>(0, static_cast<int>(calls_.size()) - 1); }

  // Lets goodbyes out.
  void EndCalls() {
    for (const auto& call : Calls()) call->Close(absl::UnavailableError("the front ends"));
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kGoodbye, [&] { return calls_.size() <= 1; });
  }

  void LetGo(const std::string& process) {
    std::lock_guard lock(launcher_mutex_);
    if (launcher_ != nullptr && !process.empty()) launcher_->LetGo(process);
  }

  // False when it is too late for that: ranks have been there. Said once.
  bool FailStart(const Status& status) {
    if (any_loaded_) return false;
    if (!start_failed_.exchange(true) && events_.Push({0, RankReport(RankFailed{status})})) events_.Wake();
    return true;
  }

  const RankServiceOptions options_;
  const std::string child_secret_;
  RankGate gate_;
  const RankCall::Limits limits_;
  int port_ = 0;
  int child_port_ = 0;
  RankEventQueue events_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<int> open_{0};
  std::atomic<bool> any_loaded_{false};
  std::atomic<bool> start_failed_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                              // guarded by mutex_, as all below
  std::map<LinkId, std::shared_ptr<RankCall>> calls_;  // with those that wait for a caller or for their end
  LinkId last_id_ = 0;

  std::mutex launcher_mutex_;
  std::unique_ptr<RankLauncher> launcher_;  // guarded by launcher_mutex_

  v1::RankControl::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::thread> threads_;
  std::thread monitor_;
};

}  // namespace

StatusOr<std::unique_ptr<GrpcRankTransport>> GrpcRankTransport::Start(const RankServiceOptions& options) {
  if (!IsLoopbackHost(options.host) && options.secret.empty() && !options.tls.given()) {
    return InvalidError("--rank-host ", options.host,
                        " can be reached from other machines: ranks may join there only with --rank-secret-file, or "
                        "with --rank-tls-cert, --rank-tls-key and --rank-tls-ca");
  }
  auto transport = std::make_unique<GrpcRankTransportImpl>(options);
  MOE_RETURN_IF_ERROR(transport->Listen());
  return transport;
}

}  // namespace moe
