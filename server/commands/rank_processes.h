// The front's rank processes, from the options: the control port, then the processes of this machine.
#ifndef MOE_SERVER_COMMANDS_RANK_PROCESSES_H_
#define MOE_SERVER_COMMANDS_RANK_PROCESSES_H_

#include <memory>
#include <string>

#include "parallel/base/status.h"
#include "server/ranks/rank_service.h"
#include "server/server_options.h"

namespace moe {

// The configured secret: the file's, else that of kRankSecretVariable, else empty. INVALID_ARGUMENT for one that is too
// short.
StatusOr<std::string> ConfiguredRankSecret(const RankOptions& ranks);

// Opens the control port. Errors as GrpcRankTransport::Start, and of the files. REQUIRES: HasRankProcesses(options).
StatusOr<std::unique_ptr<GrpcRankTransport>> OpenRankPort(const ServerOptions& options);

// Starts the processes of this machine, if any.
Status LaunchLocalRanks(const ServerOptions& options, GrpcRankTransport* transport);

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_RANK_PROCESSES_H_
