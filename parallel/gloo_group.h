// Gloo communicator: ranks as threads or processes, on one or more hosts, over TCP.
//
// Neither encrypted nor authenticated: it listens on one address only, and only while the group forms. Each connection
// takes one peer and its socket stops listening then, so during steps there is no open port. A stranger that connects
// while the group forms cannot join: the ranks then tell each other the generation and a random number that only the
// store has shown them. It can only make that one attempt fail (within rendezvous_timeout), and the caller forms the
// next generation. What Gloo (2022-05) cannot defend against: a stranger on the same network that hits this window and
// speaks Gloo's framing can end this process; other bytes do nothing.
//
// When a rank dies or aborts, and when an exchange times out, the ranks tell each other why before they close, so all
// report the same cause: UNAVAILABLE within milliseconds (after what is already in the connections has been read), or
// DEADLINE_EXCEEDED about 0.1 s after the timeout, which a stopped rank costs. Under overload the rank named may be
// another victim: it is a diagnosis, membership is for the control plane to decide.
//
// Threads: Gloo's own, one that watches the deadline, and one per peer that sleeps until the connection ends. Gloo
// itself allocates a little in each operation; nothing else here does when warm.
#ifndef MOE_PARALLEL_GLOO_GROUP_H_
#define MOE_PARALLEL_GLOO_GROUP_H_

#include <memory>

#include "parallel/communicator.h"
#include "parallel/group_options.h"
#include "parallel/rendezvous.h"

namespace moe {

// Whether this build has Gloo.
bool HasGloo();

// Meets the other ranks of the generation through `store`, which is not used any more after that. All ranks call it, in
// any order. DEADLINE_EXCEEDED or UNAVAILABLE naming the rank that did not come; UNIMPLEMENTED in a build without Gloo.
//
// Of the communicator: AllToAllV does not send parts of zero bytes, so it does not wait for a rank from which it
// expects none. A rank destroyed after its last operation lets the others finish theirs; a later operation with it
// fails. Destroying takes at most about 50 ms and 10 ms a peer. No exception leaves it.
StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GroupOptions& options, RendezvousStore& store);

}  // namespace moe

#endif  // MOE_PARALLEL_GLOO_GROUP_H_
