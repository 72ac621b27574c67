// Addresses to listen on, looked at before gRPC and civetweb do, because they do not say what is wrong with one.
#ifndef MOE_SERVER_LISTEN_ADDRESS_H_
#define MOE_SERVER_LISTEN_ADDRESS_H_

#include <string>

#include "parallel/base/status.h"

namespace moe {

// OK, or why this cannot be listened on: ALREADY_EXISTS or INVALID_ARGUMENT. flag: where the host came from.
Status CheckListenAddress(const std::string& host, int port, const char* flag = "--host");

// Opens a connection and closes it again.
void PokePort(const std::string& host, int port);

// "[::1]:80" for IPv6 hosts.
std::string JoinHostPort(const std::string& host, int port);

}  // namespace moe

#endif  // MOE_SERVER_LISTEN_ADDRESS_H_
