// Stands in for gloo_group.cc in a build without Gloo.
#include "parallel/gloo_group.h"

namespace moe {

bool HasGloo() {
  return false;
}

StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GroupOptions&, RendezvousStore&) {
  return UnsupportedError("this build has no Gloo; configure with -DMOE_GLOO=ON, or use the TCP transport");
}

}  // namespace moe
