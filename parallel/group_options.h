// GroupOptions: what a group of ranks over a network needs to know, whichever transport carries it.
#ifndef MOE_PARALLEL_GROUP_OPTIONS_H_
#define MOE_PARALLEL_GROUP_OPTIONS_H_

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "parallel/base/status.h"

namespace moe {

struct GroupOptions {
  int rank = 0;
  int size = 1;
  uint64_t generation = 0;  // ranks of different generations never meet
  // Exactly one of the two: a numeric IPv4 or IPv6 address of this host (no wildcard, no name), or an interface.
  std::string address;
  std::string interface;
  std::chrono::milliseconds rendezvous_timeout{30'000};  // from the call to a complete group
  std::chrono::milliseconds timeout{30'000};             // of each operation
};

// INVALID_ARGUMENT naming what is wrong.
Status CheckGroupOptions(const GroupOptions& options);

// An IPv4 or IPv6 address, port 0, with its length. REQUIRES: CheckGroupOptions(options). UNAVAILABLE when the
// interface has none.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
StatusOr<SocketAddress> LocalAddress(const GroupOptions& options);

// A number that only the ranks of a generation know, through the store. INTERNAL when the system gives none.
using Nonce = std::array<uint8_t, 16>;
StatusOr<Nonce> RandomNonce();

// "rank 2 cannot listen on 10.0.0.1".
std::string ListeningPlace(const GroupOptions& options);

}  // namespace moe

#endif  // MOE_PARALLEL_GROUP_OPTIONS_H_
