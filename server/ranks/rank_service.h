// GrpcRankTransport: the front's end of the control plane: a gRPC port of its own on which ranks join, the watch over
// their heartbeats, and the rank processes of this host (RankLauncher), if any.
//
// Liveness: a link from which nothing came for heartbeat_timeout is closed. When this process itself stood still, all
// deadlines move by that time, so that a stalled front fences nobody. gRPC's own keepalive, slower, only clears away
// connections to hosts that are gone.
//
// Security: beyond loopback nobody joins without the shared secret or a certificate, or both when both are set. With
// the secret alone the connection is not encrypted. Processes that the front started come over loopback with a random
// secret of their own.
#ifndef MOE_SERVER_RANKS_RANK_SERVICE_H_
#define MOE_SERVER_RANKS_RANK_SERVICE_H_

#include <memory>
#include <string>

#include "engine/core/rank_transport.h"
#include "parallel/base/status.h"
#include "server/ranks/rank_launcher.h"
#include "server/ranks/rank_security.h"

namespace moe {

struct RankServiceOptions {
  std::string host = "127.0.0.1";
  int port = 0;        // 0: a free one
  std::string secret;  // empty: none
  RankTls tls;
  bool children = false;       // processes of this host will be launched
  bool only_children = false;  // nobody else may join
  double heartbeat_timeout_seconds = 1.0;
  double hello_timeout_seconds = 10;  // for a caller to become a rank
  int max_links = 1024;
};

class GrpcRankTransport : public RankTransport {
 public:
  // INVALID_ARGUMENT for a host beyond loopback without secret or TLS, and for addresses that cannot be; ALREADY_EXISTS
  // for a port in use.
  static StatusOr<std::unique_ptr<GrpcRankTransport>> Start(const RankServiceOptions& options);
  // Ends the rank processes of this host, then all connections.
  ~GrpcRankTransport() override = default;

  virtual int port() const = 0;
  // "10.0.0.1:7070", where ranks join.
  virtual std::string address() const = 0;
  // Where processes of this host join, and the secret that they need. REQUIRES: options.children.
  virtual std::string child_address() const = 0;
  virtual std::string child_secret() const = 0;

  // Starts processes. A process that cannot load the model (it says so, or exits with kExitBadModel or kExitBadFlags)
  // before any rank has loaded comes as RankFailed of link 0: the start has failed, and it is not started again.
  // `options.on_exit` is set here. Once.
  virtual Status Launch(RankLauncherOptions options) = 0;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_SERVICE_H_
