#include "server/generate_reactors.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "moe/v1/inference.grpc.pb.h"
#include "server/generate_call.h"
#include "server/request_mapping.h"
#include "server/response_mapping.h"
#include "server/server_core.h"
#include "server/status_mapping.h"

namespace moe {
namespace {

// A client gives up at its deadline by a reset, which may be here a moment before our own clock says so.
bool DeadlinePassed(const grpc::CallbackServerContext& context) {
  return context.deadline() - std::chrono::milliseconds(50) <= std::chrono::system_clock::now();
}

// What both reactors share: the call, from mapping to the end. Lives in its reactor.
class CallHolder {
 public:
  CallHolder(ServerCore* core, grpc::CallbackServerContext* context) : core_(core), context_(context) {}

  // The refusal, or OK and the call has started.
  Status Begin(Method method, const v1::GenerateRequest& request, CallOutlet* outlet) {
    StatusOr<ServedModel*> model = core_->host().ForWork(request.model());
    if (!model.ok()) return Refuse(method, model.status());
    const MappingContext mapping{(*model)->engine->model(), core_->limits()};
    StatusOr<GenerateSpec> spec = MapGenerateRequest(request, mapping);
    if (!spec.ok()) return Refuse(method, spec.status());
    shape_.emplace(spec->request, (*model)->name, mapping.model.spec);
    call_ = std::make_shared<GenerateCall>(core_->CallEnvironment(*model), method, *std::move(spec), outlet);
    core_->calls().Add(call_);
    call_->Start();
    return Status();
  }

  // gRPC orders these reactions before OnDone by a counter inside its library, which ThreadSanitizer does not see;
  // holding the call for the length of the reaction orders them before the call's end by our own reference count too.
  void OnSent(bool ok) {
    const std::shared_ptr<GenerateCall> call = call_;
    call->OnSent(ok, !ok && DeadlinePassed(*context_));
  }

  void OnCancel() {
    const std::shared_ptr<GenerateCall> call = call_;
    if (call != nullptr) call->ClientGone(DeadlinePassed(*context_));
  }

  void OnDone() {
    if (call_ == nullptr) return;
    call_->Detach();
    core_->calls().Remove(call_.get());
  }

  void Break() { context_->TryCancel(); }
  const ResponseShape& shape() const { return *shape_; }

 private:
  Status Refuse(Method method, const Status& status) {
    RejectReason reason = RejectReason::kInvalid;
    if (status.code() == absl::StatusCode::kUnavailable) {
      reason = core_->host().model() == nullptr ? RejectReason::kLoading : RejectReason::kDraining;
    }
    core_->counters().Rejected(reason);
    core_->counters().Finished(method, static_cast<int>(status.code()));
    return status;
  }

  ServerCore* const core_;
  grpc::CallbackServerContext* const context_;
  std::optional<ResponseShape> shape_;
  std::shared_ptr<GenerateCall> call_;
};

// gRPC never runs a reaction inside one of our Start… or Finish calls, so the call may hold its mutex while it is here.
class UnaryReactor final : public grpc::ServerUnaryReactor, private CallOutlet {
 public:
  UnaryReactor(ServerCore* core, grpc::CallbackServerContext* context, const v1::GenerateRequest& request,
               v1::GenerateResponse* response)
      : holder_(core, context), response_(response) {
    const Status status = holder_.Begin(Method::kGenerate, request, this);
    if (!status.ok()) ServerUnaryReactor::Finish(ToGrpc(status));
  }

 private:
  void OnCancel() override { holder_.OnCancel(); }
  void OnDone() override {
    holder_.OnDone();
    delete this;
  }

  void Send(Delta, const CallUsage&) override {}
  void Finish(const Status& status, std::vector<Delta> rest, const CallUsage& usage) override {
    if (status.ok()) FillResponse(std::move(rest), usage, holder_.shape(), response_);
    ServerUnaryReactor::Finish(ToGrpc(status));
  }
  void Break() override { holder_.Break(); }

  CallHolder holder_;
  v1::GenerateResponse* const response_;
};

class StreamReactor final : public grpc::ServerWriteReactor<v1::GenerateChunk>, private CallOutlet {
 public:
  StreamReactor(ServerCore* core, grpc::CallbackServerContext* context, const v1::GenerateRequest& request)
      : holder_(core, context) {
    const Status status = holder_.Begin(Method::kGenerateStream, request, this);
    if (!status.ok()) ServerWriteReactor::Finish(ToGrpc(status));
  }

 private:
  void OnWriteDone(bool ok) override { holder_.OnSent(ok); }
  void OnCancel() override { holder_.OnCancel(); }
  void OnDone() override {
    holder_.OnDone();
    delete this;
  }

  void Send(Delta delta, const CallUsage& usage) override {
    chunk_.Clear();
    FillChunk(delta, usage, holder_.shape(), &chunk_);
    StartWrite(&chunk_);
  }
  void Finish(const Status& status, std::vector<Delta>, const CallUsage&) override {
    ServerWriteReactor::Finish(ToGrpc(status));
  }
  void Break() override { holder_.Break(); }

  CallHolder holder_;
  v1::GenerateChunk chunk_;  // the one in flight
};

}  // namespace

grpc::ServerUnaryReactor* StartGenerate(ServerCore* core, grpc::CallbackServerContext* context,
                                        const v1::GenerateRequest* request, v1::GenerateResponse* response) {
  return new UnaryReactor(core, context, *request, response);
}

grpc::ServerWriteReactor<v1::GenerateChunk>* StartGenerateStream(ServerCore* core, grpc::CallbackServerContext* context,
                                                                 const v1::GenerateRequest* request) {
  return new StreamReactor(core, context, *request);
}

}  // namespace moe
