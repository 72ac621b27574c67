// TCP communicator: ranks as threads or processes, on one or more hosts.
//
// Neither encrypted nor authenticated by a cipher: it listens on one address only, and only while the group forms;
// during steps there is no open port. A stranger that connects while the group forms gets no further than its greeting,
// which must hold the generation and a random number that only the store has shown the ranks; the ranks come in beside
// it. Who can read or change what is on the network between the ranks can read and change rows.
//
// When a rank dies or aborts, and when an exchange times out, the ranks tell each other why before they close, so all
// report the same cause: UNAVAILABLE within milliseconds, or DEADLINE_EXCEEDED about 0.1 s after the timeout, which a
// stopped rank costs. Under overload the rank named may be another victim: it is a diagnosis, membership is for the
// control plane to decide.
//
// No threads of its own: operations are carried by the thread that calls them (tcp_communicator.h), and nothing is
// noticed between two operations.
#ifndef MOE_PARALLEL_TCP_GROUP_H_
#define MOE_PARALLEL_TCP_GROUP_H_

#include <memory>

#include "parallel/communicator.h"
#include "parallel/group_options.h"
#include "parallel/rendezvous.h"

namespace moe {

// Meets the other ranks of the generation through `store`, which is not used any more after that. All ranks call it, in
// any order. DEADLINE_EXCEEDED or UNAVAILABLE naming the rank that did not come.
//
// Of the communicator: AllToAllV does not send parts of zero bytes, so it does not wait for a rank from which it
// expects none. Sizes that do not agree: INTERNAL naming both. A rank destroyed after its last operation lets the
// others finish theirs; a later operation with it fails.
StatusOr<std::unique_ptr<Communicator>> CreateTcpCommunicator(const GroupOptions& options, RendezvousStore& store);

}  // namespace moe

#endif  // MOE_PARALLEL_TCP_GROUP_H_
