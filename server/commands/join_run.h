// The life of a `moe serve --join` process: the model is opened, the front is found, its orders are followed.
#ifndef MOE_SERVER_COMMANDS_JOIN_RUN_H_
#define MOE_SERVER_COMMANDS_JOIN_RUN_H_

#include "server/server_options.h"

namespace moe {

// Returns the exit code: kExitDrained when the front said to leave (or a signal did), kExitBadModel, kExitInternal when
// the front refused this rank, did not come or was lost. May end the process by itself, on a signal.
int RunJoin(const ServerOptions& options);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_JOIN_RUN_H_
