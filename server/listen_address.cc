#include "server/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace moe {

std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? Cat(host, ":", port) : Cat("[", host, "]:", port);
}

Status CheckListenAddress(const std::string& host, int port, const char* flag) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return InvalidError(flag, ": ", host, " is not an address of this machine: ", gai_strerror(error));
  Status status;
  for (addrinfo* address = found; address != nullptr && status.ok(); address = address->ai_next) {
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // a family this machine does not have
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, 1) != 0) {
      const int reason = errno;
      const std::string where = JoinHostPort(host, port);
      if (reason == EADDRINUSE) {
        status = absl::AlreadyExistsError(Cat("port ", port, " of ", host, " is in use by another process"));
      } else {
        status = InvalidError("cannot listen on ", where, ": ", std::strerror(reason));
      }
    }
    close(fd);
  }
  freeaddrinfo(found);
  return status;
}

void PokePort(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    (void)connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace moe
