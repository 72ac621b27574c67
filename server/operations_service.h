// The service moe.v1.Operations: what an operator does to a running server.
#ifndef MOE_SERVER_OPERATIONS_SERVICE_H_
#define MOE_SERVER_OPERATIONS_SERVICE_H_

#include <memory>

namespace grpc {
class Service;
}

namespace moe {

class ServerCore;

// `core` outlives the service.
std::unique_ptr<grpc::Service> NewOperationsService(ServerCore* core);

}  // namespace moe

#endif  // MOE_SERVER_OPERATIONS_SERVICE_H_
