// What carries the rows between ranks that are not threads of one process.
#ifndef MOE_PARALLEL_EXCHANGE_TRANSPORT_H_
#define MOE_PARALLEL_EXCHANGE_TRANSPORT_H_

#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/group_options.h"
#include "parallel/rendezvous.h"

namespace moe {

enum class ExchangeTransport {
  kTcp,   // tcp_group.h: always there, and the fastest on loopback
  kGloo,  // gloo_group.h: where the build has it
};

// "tcp", "gloo"; INVALID_ARGUMENT naming both for another name.
const char* TransportName(ExchangeTransport transport);
StatusOr<ExchangeTransport> ParseTransport(const std::string& name);

// UNIMPLEMENTED naming the transport if this build lacks it.
Status CheckTransport(ExchangeTransport transport);

// As CreateTcpCommunicator and CreateGlooCommunicator say.
StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(ExchangeTransport transport, const GroupOptions& options,
                                                           RendezvousStore& store);

}  // namespace moe

#endif  // MOE_PARALLEL_EXCHANGE_TRANSPORT_H_
