#include "server/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "server/health_service.h"
#include "server/inference_service.h"
#include "server/listen_address.h"
#include "server/operations_service.h"
#include "server/parse_failures.h"
#include "server/server_core.h"

namespace moe {
namespace {

// Clients may ping every 10 s, also without a call; ones that ping much faster are sent away (GOAWAY, too_many_pings)
// after the usual two strikes. A little below ten seconds, so that a late timer of theirs is no strike.
constexpr int kMinPingIntervalMs = 5000;
// We ping silent connections, to notice clients whose machine vanished.
constexpr int kKeepaliveMs = 60000;
constexpr int kKeepaliveTimeoutMs = 20000;

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(ServerCore* core, std::string host)
      : core_(core),
        host_(std::move(host)),
        health_(NewHealthService()),
        inference_(NewInferenceService(core)),
        operations_(NewOperationsService(core)) {}

  ~GrpcServerImpl() override {
    Shutdown(0);
    core_->host().OnServingChange(nullptr);
  }

  Status Build(const GrpcServerOptions& options) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    const int bytes = static_cast<int>(std::min<int64_t>(options.max_message_bytes, std::numeric_limits<int>::max()));
    builder.SetMaxReceiveMessageSize(bytes);
    builder.SetMaxSendMessageSize(bytes);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on our port is an error
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
    builder.AddListeningPort(JoinHostPort(options.host, options.port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(health_->service());
    builder.RegisterService(inference_.get());
    builder.RegisterService(operations_.get());
    ReportParseFailures(&builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::AlreadyExistsError(Cat("cannot listen on ", JoinHostPort(options.host, options.port)));
    }
    core_->host().OnServingChange([this](bool serving) { health_->SetServing(serving); });
    health_->SetServing(core_->host().Serving());
    return Status();
  }

  int port() const override { return port_; }
  std::string address() const override { return JoinHostPort(host_, port_); }

  void Shutdown(double grace_seconds) override {
    if (server_ == nullptr) return;
    health_->EndWatches();
    const auto grace = std::chrono::duration<double>(grace_seconds);
    server_->Shutdown(std::chrono::system_clock::now() +
                      std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
    server_->Wait();
    server_.reset();
  }

 private:
  ServerCore* const core_;
  const std::string host_;
  int port_ = 0;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<grpc::Service> inference_;
  std::unique_ptr<grpc::Service> operations_;
  std::unique_ptr<grpc::Server> server_;  // goes first
};

}  // namespace

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(ServerCore* core, const GrpcServerOptions& options) {
  MOE_RETURN_IF_ERROR(CheckListenAddress(options.host, options.port));
  auto server = std::make_unique<GrpcServerImpl>(core, options.host);
  MOE_RETURN_IF_ERROR(server->Build(options));
  return server;
}

}  // namespace moe
