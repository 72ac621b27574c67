#include "server/commands/rank_processes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "parallel/base/log.h"
#include "parallel/worker_pool.h"
#include "server/commands/rank_flags.h"
#include "server/ranks/rank_launcher.h"

namespace moe {
namespace {

constexpr size_t kMinSecret = 16;

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      break;
  }
  return "error";
}

// What follows the program's name.
std::vector<std::string> RankArguments(const ServerOptions& options, const std::string& front) {
  const RankOptions& ranks = options.ranks;
  const int threads = options.engine.threads > 0 ? options.engine.threads : UsableCores();
  std::vector<std::string> arguments = {"serve", "--join", front};
  const auto add = [&](const char* flag, const std::string& value) {
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  if (!options.model.empty()) add("--model", options.model);
  if (ranks.interface.empty()) {
    add("--rank-host", ranks.host);
  } else {
    add("--rank-interface", ranks.interface);
  }
  if (ranks.trusted_network) arguments.emplace_back("--trusted-rank-network");
  add("--threads", std::to_string(std::max(1, threads / LocalRanks(options))));
  add("--device", options.engine.device);
  add("--cpu-isa", options.engine.cpu_isa);
  add("--log-level", LevelName(options.log_level));
  add("--log-format", options.log_format == LogFormat::kJson ? "json" : "text");
  return arguments;
}

}  // namespace

StatusOr<std::string> ConfiguredRankSecret(const RankOptions& ranks) {
  if (!ranks.secret_file.empty()) return ReadRankSecret(ranks.secret_file);
  const char* given = std::getenv(kRankSecretVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const std::string secret = given == nullptr ? "" : given;
  const bool printable = std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!secret.empty() && (secret.size() < kMinSecret || !printable)) {
    return InvalidError(kRankSecretVariable, " must be at least ", kMinSecret,
                        " printable ASCII characters without spaces");
  }
  return secret;
}

StatusOr<std::unique_ptr<GrpcRankTransport>> OpenRankPort(const ServerOptions& options) {
  const RankOptions& ranks = options.ranks;
  RankServiceOptions service;
  service.host = ranks.host;
  service.port = ranks.port;
  MOE_ASSIGN_OR_RETURN(service.secret, ConfiguredRankSecret(ranks));
  MOE_ASSIGN_OR_RETURN(service.tls, ReadRankTls(ranks.tls_cert, ranks.tls_key, ranks.tls_ca));
  const int local = LocalRanks(options);
  service.children = local > 0;
  // On loopback without a secret anyone on this machine could join: where nobody has to, nobody may.
  service.only_children =
      local == options.engine.expert_parallel_size && service.secret.empty() && !service.tls.given();
  service.heartbeat_timeout_seconds = ranks.heartbeat_timeout_seconds;
  return GrpcRankTransport::Start(service);
}

Status LaunchLocalRanks(const ServerOptions& options, GrpcRankTransport* transport) {
  RankLauncherOptions launcher;
  launcher.first_delay_seconds = options.ranks.restart_delay_seconds;
  launcher.count = LocalRanks(options);
  if (launcher.count == 0) return Status();
  launcher.arguments = RankArguments(options, transport->child_address());
  launcher.arguments.insert(launcher.arguments.begin(), "moe");
  launcher.environment = {Cat(kRankSecretVariable, "=", transport->child_secret())};
  return transport->Launch(std::move(launcher));
}

}  // namespace moe
