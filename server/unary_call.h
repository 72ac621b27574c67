// Short unary calls: answered at once, or by a job of the prompt pool. Counts each call once.
#ifndef MOE_SERVER_UNARY_CALL_H_
#define MOE_SERVER_UNARY_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "server/server_core.h"
#include "server/status_mapping.h"

namespace moe {

inline grpc::ServerUnaryReactor* Answer(ServerCore* core, grpc::CallbackServerContext* context, Method method,
                                        const Status& status) {
  core->counters().Finished(method, static_cast<int>(status.code()));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// `job` returns the call's status; request and response live until it has.
template <typename Job>
grpc::ServerUnaryReactor* RunInPool(ServerCore* core, grpc::CallbackServerContext* context, Method method, Job job) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool scheduled = core->prompt_pool().TrySchedule(
      [core, reactor, method, job = std::move(job)] {
        const Status status = job();
        core->counters().Finished(method, static_cast<int>(status.code()));
        reactor->Finish(ToGrpc(status));
      },
      core->max_waiting_prompts());
  if (scheduled) return reactor;
  return Answer(core, context, method,
                absl::ResourceExhaustedError("too many calls wait for the text pool; try again later"));
}

}  // namespace moe

#endif  // MOE_SERVER_UNARY_CALL_H_
