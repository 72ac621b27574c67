// Stands in for gloo_group.cc in a build without Gloo.
#include "parallel/gloo_group.h"

namespace moe {

bool HasGloo() {
  return false;
}

StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions&, RendezvousStore&) {
  return UnsupportedError("this build has no Gloo; configure with -DMOE_GLOO=ON, or let the ranks be threads");
}

}  // namespace moe
