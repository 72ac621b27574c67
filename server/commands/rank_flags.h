// The flags of rank processes, for the front and for `--join`, and which of them go together.
#ifndef MOE_SERVER_COMMANDS_RANK_FLAGS_H_
#define MOE_SERVER_COMMANDS_RANK_FLAGS_H_

#include <string>

#include "parallel/base/status.h"
#include "server/server_options.h"

namespace CLI {
class App;
}

namespace moe {

void AddRankFlags(CLI::App* app, ServerOptions* options);

// Whether the front's ranks are processes.
bool HasRankProcesses(const ServerOptions& options);
// Processes that the front starts here. REQUIRES: HasRankProcesses(options).
int LocalRanks(const ServerOptions& options);

// INVALID_ARGUMENT naming the flags that contradict each other, UNIMPLEMENTED for what this build lacks. Reads no file
// and opens no port.
Status CheckRankFlags(const ServerOptions& options);

// "10.0.0.1:7070" or "[::1]:7070" in its parts; INVALID_ARGUMENT naming --join.
struct HostPort {
  std::string host;
  int port = 0;
};
StatusOr<HostPort> ParseHostPort(const std::string& text);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_RANK_FLAGS_H_
