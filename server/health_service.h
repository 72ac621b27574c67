// grpc.health.v1: Check and Watch for "" and the names of our services. All share one state: they serve the same model.
#ifndef MOE_SERVER_HEALTH_SERVICE_H_
#define MOE_SERVER_HEALTH_SERVICE_H_

#include <memory>

namespace grpc {
class Service;
}

namespace moe {

class HealthService {
 public:
  virtual ~HealthService() = default;
  virtual grpc::Service* service() = 0;
  // NOT_SERVING until told otherwise. Watchers hear of each change. Thread-safe.
  virtual void SetServing(bool serving) = 0;
  // Ends all watches, so that the gRPC server can shut down at once.
  virtual void EndWatches() = 0;
};

std::unique_ptr<HealthService> NewHealthService();

}  // namespace moe

#endif  // MOE_SERVER_HEALTH_SERVICE_H_
