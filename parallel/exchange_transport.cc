#include "parallel/exchange_transport.h"

#include "parallel/gloo_group.h"
#include "parallel/tcp_group.h"

namespace moe {

const char* TransportName(ExchangeTransport transport) {
  return transport == ExchangeTransport::kTcp ? "tcp" : "gloo";
}

StatusOr<ExchangeTransport> ParseTransport(const std::string& name) {
  for (const ExchangeTransport transport : {ExchangeTransport::kTcp, ExchangeTransport::kGloo}) {
    if (name == TransportName(transport)) return transport;
  }
  return InvalidError("rank transport '", name, "' is not one of tcp, gloo");
}

Status CheckTransport(ExchangeTransport transport) {
  if (transport == ExchangeTransport::kTcp || HasGloo()) return absl::OkStatus();
  return UnsupportedError("this build has no Gloo: rank transport tcp is there");
}

StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(ExchangeTransport transport, const GroupOptions& options,
                                                           RendezvousStore& store) {
  MOE_RETURN_IF_ERROR(CheckTransport(transport));
  return transport == ExchangeTransport::kTcp ? CreateTcpCommunicator(options, store)
                                              : CreateGlooCommunicator(options, store);
}

}  // namespace moe
