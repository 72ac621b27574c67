#include "tests/server/server_fixture.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"
#include "moe/v1/inference.grpc.pb.h"

namespace moe::testing {
namespace {

RpcStatus FromGrpc(const grpc::Status& status) {
  return {status.error_code(), status.error_message()};
}

void SetDeadline(grpc::ClientContext* context, double seconds) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
}

class StreamImpl final : public Stream {
 public:
  StreamImpl(v1::Inference::Stub* stub, const v1::GenerateRequest& request, double deadline) {
    SetDeadline(&context_, deadline);
    reader_ = stub->GenerateStream(&context_, request);
  }
  ~StreamImpl() override {
    context_.TryCancel();
    if (!finished_) Finish();
  }
  bool Read(v1::GenerateChunk* chunk) override { return reader_->Read(chunk); }
  void Cancel() override { context_.TryCancel(); }
  RpcStatus Finish() override {
    finished_ = true;
    v1::GenerateChunk chunk;
    while (reader_->Read(&chunk)) {
    }
    return FromGrpc(reader_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateChunk>> reader_;
  bool finished_ = false;
};

class WatchImpl final : public HealthWatch {
 public:
  WatchImpl(grpc::health::v1::Health::Stub* stub, const std::string& service) {
    SetDeadline(&context_, 30);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub->Watch(&context_, request);
  }
  ~WatchImpl() override {
    context_.TryCancel();
    grpc::health::v1::HealthCheckResponse response;
    while (reader_->Read(&response)) {
    }
    reader_->Finish();
  }
  int Next() override {
    grpc::health::v1::HealthCheckResponse response;
    return reader_->Read(&response) ? static_cast<int>(response.status()) : -1;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> reader_;
};

// One unary call through a stub's method.
template <typename Stub, typename Request, typename Response>
RpcStatus Call(Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
               const Request& request, Response* response, double deadline = 30) {
  grpc::ClientContext context;
  SetDeadline(&context, deadline);
  return FromGrpc((stub->*method)(&context, request, response));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RpcStatus& status) {
  return out << "code " << status.code << ": " << status.message;
}

struct Client::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : generic(channel),
        inference(v1::Inference::NewStub(channel)),
        operations(v1::Operations::NewStub(channel)),
        health(grpc::health::v1::Health::NewStub(channel)) {}
  grpc::GenericStub generic;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Operations::Stub> operations;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

Client::Client(const std::string& address, bool small_window) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  if (small_window) {
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);
  }
  stubs_ = std::make_unique<Stubs>(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

Client::~Client() = default;

RpcStatus Client::Generate(const v1::GenerateRequest& request, v1::GenerateResponse* response, double deadline) {
  return Call(stubs_->inference.get(), &v1::Inference::Stub::Generate, request, response, deadline);
}
std::unique_ptr<Stream> Client::GenerateStream(const v1::GenerateRequest& request, double deadline) {
  return std::make_unique<StreamImpl>(stubs_->inference.get(), request, deadline);
}
RpcStatus Client::Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
  return Call(stubs_->inference.get(), &v1::Inference::Stub::Tokenize, request, response);
}
RpcStatus Client::Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response) {
  return Call(stubs_->inference.get(), &v1::Inference::Stub::Detokenize, request, response);
}
RpcStatus Client::GetModel(const std::string& name, v1::ModelInfo* response) {
  v1::GetModelRequest request;
  request.set_model(name);
  return Call(stubs_->inference.get(), &v1::Inference::Stub::GetModel, request, response);
}
RpcStatus Client::Drain(double deadline_seconds, v1::DrainResponse* response) {
  v1::DrainRequest request;
  request.set_deadline_seconds(deadline_seconds);
  return Call(stubs_->operations.get(), &v1::Operations::Stub::Drain, request, response);
}
RpcStatus Client::Abort(const std::vector<std::string>& ids, v1::AbortResponse* response) {
  v1::AbortRequest request;
  for (const std::string& id : ids) request.add_request_ids(id);
  return Call(stubs_->operations.get(), &v1::Operations::Stub::Abort, request, response);
}
RpcStatus Client::GetLoad(v1::Load* response) {
  return Call(stubs_->operations.get(), &v1::Operations::Stub::GetLoad, v1::GetLoadRequest(), response);
}
RpcStatus Client::GetExpertPlacement(v1::ExpertPlacement* response) {
  return Call(stubs_->operations.get(), &v1::Operations::Stub::GetExpertPlacement, v1::GetExpertPlacementRequest(),
              response);
}
RpcStatus Client::Rebalance() {
  v1::ExpertPlacement response;
  return Call(stubs_->operations.get(), &v1::Operations::Stub::RebalanceExperts, v1::RebalanceExpertsRequest(),
              &response);
}
RpcStatus Client::FlushPrefixCache(v1::FlushPrefixCacheResponse* response) {
  return Call(stubs_->operations.get(), &v1::Operations::Stub::FlushPrefixCache, v1::FlushPrefixCacheRequest(),
              response);
}
RpcStatus Client::RawCall(const std::string& path, const std::string& bytes) {
  grpc::ClientContext context;
  SetDeadline(&context, 30);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stubs_->generic.UnaryCall(&context, path, {}, &request, &response,
                            [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return FromGrpc(done.get_future().get());
}
RpcStatus Client::CheckHealth(const std::string& service, int* status) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const RpcStatus result = Call(stubs_->health.get(), &grpc::health::v1::Health::Stub::Check, request, &response);
  *status = static_cast<int>(response.status());
  return result;
}
std::unique_ptr<HealthWatch> Client::WatchHealth(const std::string& service) {
  return std::make_unique<WatchImpl>(stubs_->health.get(), service);
}

void ServerTest::Start(FakeEngineOptions engine, ServerOptions options, bool load) {
  core_ = std::make_unique<ServerCore>("test-model", options);
  GrpcServerOptions grpc_options;
  grpc_options.max_message_bytes = options.max_message_bytes;
  auto server = GrpcServer::Start(core_.get(), grpc_options);
  ASSERT_TRUE(server.ok()) << server.status().message();
  server_ = *std::move(server);
  housekeeping_ = std::make_unique<Housekeeping>(core_.get());
  housekeeping_->Hurry();
  client_ = std::make_unique<Client>(server_->address());
  if (load) Load(std::move(engine));
}

void ServerTest::Load(FakeEngineOptions options) {
  auto engine = std::make_unique<FakeEngine>(TestModel(), std::move(options));
  engine_ = engine.get();
  core_->host().SetModel(std::make_unique<ServedModel>("test-model", std::move(engine)));
}

FakeEngineOptions ServerTest::Says(const std::string& text) {
  FakeEngineOptions options;
  static const std::unique_ptr<LoadedModel> model = TestModel();
  options.script = [ids = Ids(*model, text)](const Request&, uint32_t) { return ids; };
  return options;
}

void ServerTest::TearDown() {
  client_.reset();
  if (server_ != nullptr) server_->Shutdown(0);
  housekeeping_.reset();
  server_.reset();
  core_.reset();
}

v1::GenerateRequest ServerTest::TextRequest(const std::string& text, uint32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  return request;
}

bool ServerTest::Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace moe::testing
