// Gloo communicator: ranks as threads or processes, on one or more hosts, over TCP.
//
// Neither encrypted nor authenticated: it listens on one address only, and only while the group forms. Each connection
// takes one peer and its socket stops listening then, so during steps there is no open port. A stranger that connects
// while the group forms cannot join: the ranks then tell each other the generation and a random number that only the
// store has shown them. It can only make that one attempt fail (within rendezvous_timeout), and the caller forms the
// next generation. What Gloo (2022-05) cannot defend against: a stranger on the same network that hits this window and
// speaks Gloo's framing can end this process; other bytes do nothing.
//
// When a rank dies, leaves or aborts, and when an exchange times out, the first rank to see it tells the others why, so
// every rank reports the same cause, and closes. Limit: an Abort or a lost peer is seen at once, but a rank that is
// stopped keeps the others until the timeout.
#ifndef MOE_PARALLEL_GLOO_GROUP_H_
#define MOE_PARALLEL_GLOO_GROUP_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/rendezvous.h"

namespace moe {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  uint64_t generation = 0;  // ranks of different generations never meet
  // Exactly one of the two: a numeric IPv4 or IPv6 address of this host (no wildcard, no name), or an interface.
  std::string address;
  std::string interface;
  std::chrono::milliseconds rendezvous_timeout{30'000};  // from the call to a complete group
  std::chrono::milliseconds timeout{30'000};             // of each operation
};

// Whether this build has Gloo.
bool HasGloo();

// Meets the other ranks of the generation through `store`, which is not used any more after that. All ranks call it, in
// any order. DEADLINE_EXCEEDED or UNAVAILABLE naming the rank that did not come; UNIMPLEMENTED in a build without Gloo.
//
// Of the communicator: AllToAllV does not send parts of zero bytes, so it does not wait for a rank from which it
// expects none. A rank destroyed after its last operation lets the others finish theirs; a later operation with it
// fails. Destroying takes at most about 50 ms and 10 ms a peer. No exception leaves it.
StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options, RendezvousStore& store);

}  // namespace moe

#endif  // MOE_PARALLEL_GLOO_GROUP_H_
