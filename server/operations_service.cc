#include "server/operations_service.h"

#include <string>
#include <vector>

#include "moe/v1/inference.grpc.pb.h"
#include "parallel/base/log.h"
#include "server/field_checks.h"
#include "server/request_mapping.h"
#include "server/response_mapping.h"
#include "server/unary_call.h"

namespace moe {
namespace {

constexpr int kMaxAbortIds = 65536;

class OperationsService final : public v1::Operations::CallbackService {
 public:
  explicit OperationsService(ServerCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* GetExpertPlacement(grpc::CallbackServerContext* context,
                                               const v1::GetExpertPlacementRequest*,
                                               v1::ExpertPlacement* response) override {
    const StatusOr<ServedModel*> model = core_->host().ForQuery("");
    if (model.ok()) FillPlacement((*model)->engine->Stats(), response);
    return Answer(core_, context, Method::kGetExpertPlacement, model.status());
  }

  // The answer comes when the new placement is in force, or will not be.
  grpc::ServerUnaryReactor* RebalanceExperts(grpc::CallbackServerContext* context,
                                             const v1::RebalanceExpertsRequest* request,
                                             v1::ExpertPlacement* response) override {
    const StatusOr<ServedModel*> model = core_->host().ForQuery("");
    if (!model.ok()) return Answer(core_, context, Method::kRebalanceExperts, model.status());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Engine* engine = (*model)->engine.get();
    engine->Rebalance(request->redundant_experts(), [this, reactor, response, engine](const Status& status) {
      if (status.ok()) FillPlacement(engine->Stats(), response);
      core_->counters().Finished(Method::kRebalanceExperts, static_cast<int>(status.code()));
      reactor->Finish(ToGrpc(status));
    });
    return reactor;
  }

  // The answer comes when the drain has ended; a caller that leaves earlier does not stop it.
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    const Status valid = CheckSeconds(request->deadline_seconds(), "deadline_seconds");
    if (!valid.ok()) return Answer(core_, context, Method::kDrain, valid);
    MOE_LOG(kInfo) << "draining, as asked by Operations.Drain (deadline " << request->deadline_seconds() << " s)";
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_->Drain(request->deadline_seconds(), [this, reactor, response](uint32_t finished, uint32_t cancelled) {
      response->set_finished(finished);
      response->set_cancelled(cancelled);
      core_->counters().Finished(Method::kDrain, 0);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override {
    const Status valid = CheckRange<int64_t>("request_ids count", request->request_ids_size(), 0, kMaxAbortIds);
    if (valid.ok()) {
      const std::vector<std::string> ids(request->request_ids().begin(), request->request_ids().end());
      response->set_aborted(core_->calls().Abort(ids));
    }
    return Answer(core_, context, Method::kAbort, valid);
  }

  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const v1::GetLoadRequest*,
                                    v1::Load* response) override {
    const StatusOr<ServedModel*> model = core_->host().ForQuery("");
    if (model.ok()) FillLoad((*model)->engine->Stats(), (*model)->engine->info(), response);
    return Answer(core_, context, Method::kGetLoad, model.status());
  }

  grpc::ServerUnaryReactor* FlushPrefixCache(grpc::CallbackServerContext* context, const v1::FlushPrefixCacheRequest*,
                                             v1::FlushPrefixCacheResponse* response) override {
    // In the pool: the engine answers between two steps.
    return RunInPool(core_, context, Method::kFlushPrefixCache, [this, response]() -> Status {
      MOE_ASSIGN_OR_RETURN(ServedModel * model, core_->host().ForQuery(""));
      response->set_freed_blocks(static_cast<uint64_t>(model->engine->FlushPrefixCache()));
      return Status();
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewOperationsService(ServerCore* core) {
  return std::make_unique<OperationsService>(core);
}

}  // namespace moe
