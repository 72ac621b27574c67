// The life of a `moe serve` process: ports open, model loads, requests are served, a signal drains.
#ifndef MOE_SERVER_COMMANDS_SERVE_RUN_H_
#define MOE_SERVER_COMMANDS_SERVE_RUN_H_

#include "server/server_options.h"

namespace moe {

// Returns the exit code. May end the process by itself: on a second signal, or on one while the model loads.
int RunServe(const ServerOptions& options);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_SERVE_RUN_H_
