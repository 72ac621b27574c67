// The service moe.v1.Inference. Methods map and hand over; they never block and never tokenize on gRPC's threads.
#ifndef MOE_SERVER_INFERENCE_SERVICE_H_
#define MOE_SERVER_INFERENCE_SERVICE_H_

#include <memory>

namespace grpc {
class Service;
}

namespace moe {

class ServerCore;

// `core` outlives the service.
std::unique_ptr<grpc::Service> NewInferenceService(ServerCore* core);

}  // namespace moe

#endif  // MOE_SERVER_INFERENCE_SERVICE_H_
