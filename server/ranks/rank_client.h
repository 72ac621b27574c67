// GrpcRankPort: a rank process's end of the control plane.
//
// A thread of its own, which never computes, writes: reports in order, and a heartbeat every 100 ms between them (after
// the first report). Beyond loopback, gRPC's keepalive notices within 3 s that the front's host has vanished; on
// loopback a front that stands still is waited for.
#ifndef MOE_SERVER_RANKS_RANK_CLIENT_H_
#define MOE_SERVER_RANKS_RANK_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/core/rank_port.h"
#include "server/ranks/rank_security.h"

namespace moe {

struct RankClientOptions {
  std::string target;   // HOST:PORT of the front
  std::string secret;   // empty: none
  std::string process;  // the name that the launcher gave; empty: none
  RankTls tls;
  double join_timeout_seconds = 60;  // while the front is not up, or full
  double heartbeat_seconds = 0.1;
};

class GrpcRankPort : public RankPort {
 public:
  // Waits for the front. UNAUTHENTICATED when it refuses secret or certificate, DEADLINE_EXCEEDED naming the target and
  // the last failure. The first report, a RankHello, is due within 10 s.
  static StatusOr<std::unique_ptr<GrpcRankPort>> Connect(const RankClientOptions& options);
  // Reports still get about a second to go out.
  ~GrpcRankPort() override = default;

  // What heartbeats carry; called on the writing thread, never after this returns with another. Null: 0.
  virtual void SetProgress(std::function<uint64_t()> progress) = 0;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_CLIENT_H_
