#include "parallel/group_options.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <cstring>
#include <memory>

namespace moe {
namespace {

// An address in numbers; length 0 when `text` is none.
SocketAddress ParseAddress(const std::string& text) {
  SocketAddress parsed;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&parsed.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&parsed.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    parsed.storage.ss_family = AF_INET;
    parsed.length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    parsed.storage.ss_family = AF_INET6;
    parsed.length = sizeof(*v6);
  }
  return parsed;
}

bool IsHostAddress(const SocketAddress& address) {
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  if (address.storage.ss_family == AF_INET) return v4.sin_addr.s_addr != htonl(INADDR_ANY);
  return address.storage.ss_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

}  // namespace

Status CheckGroupOptions(const GroupOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidError("rank ", options.rank, " of ", options.size, ": ranks count from 0");
  }
  if (options.timeout.count() <= 0 || options.rendezvous_timeout.count() <= 0) {
    return InvalidError("timeouts of a group must be positive");
  }
  if (options.address.empty() == options.interface.empty()) {
    return InvalidError("a rank needs either an address or an interface to listen on");
  }
  if (!options.address.empty() && !IsHostAddress(ParseAddress(options.address))) {
    return InvalidError("rank address '", options.address, "' is not the numeric address of one host");
  }
  if (!options.interface.empty() && if_nametoindex(options.interface.c_str()) == 0) {
    return InvalidError("rank interface '", options.interface, "' does not exist");
  }
  return absl::OkStatus();
}

StatusOr<SocketAddress> LocalAddress(const GroupOptions& options) {
  if (!options.address.empty()) return ParseAddress(options.address);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::UnavailableError("the system does not list its interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || options.interface != entry->ifa_name) {
        continue;
      }
      SocketAddress found;
      found.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&found.storage, entry->ifa_addr, found.length);
      return found;
    }
  }
  return absl::UnavailableError(Cat("interface ", options.interface, " has no address"));
}

StatusOr<Nonce> RandomNonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return absl::InternalError("the system gives no random bytes");
  }
  return nonce;
}

std::string ListeningPlace(const GroupOptions& options) {
  return Cat("rank ", options.rank, " cannot listen on ", options.address, options.interface);
}

}  // namespace moe
