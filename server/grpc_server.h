// GrpcServer: the port with all services on it. Opens before the model is there; health says NOT_SERVING until then.
#ifndef MOE_SERVER_GRPC_SERVER_H_
#define MOE_SERVER_GRPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/base/status.h"

namespace moe {

class ServerCore;

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  int64_t max_message_bytes = int64_t{64} << 20;
  int max_concurrent_streams = 4096;  // of one connection
};

class GrpcServer {
 public:
  // ALREADY_EXISTS for a port in use, INVALID_ARGUMENT for an address that cannot be. `core` outlives the server.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(ServerCore* core, const GrpcServerOptions& options);
  virtual ~GrpcServer() = default;  // as Shutdown(0)

  virtual int port() const = 0;
  // "127.0.0.1:50051"
  virtual std::string address() const = 0;
  // Ends watches, lets calls go on for `grace_seconds`, then cancels them; returns when all have ended.
  virtual void Shutdown(double grace_seconds) = 0;
};

}  // namespace moe

#endif  // MOE_SERVER_GRPC_SERVER_H_
