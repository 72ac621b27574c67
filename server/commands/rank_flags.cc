#include "server/commands/rank_flags.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "engine/tools/engine_flags.h"
#include "parallel/exchange_transport.h"
#include "server/commands/flags.h"
#include "server/ranks/rank_security.h"

namespace moe {
namespace {

constexpr const char* kGroup = "Rank processes (with --expert-parallel-size above 1, or --join)";

CLI::Option* AddSwitch(CLI::App* app, const std::string& flag, bool& value, const std::string& help) {
  return app->add_flag(flag, value, help)->envname(EnvironmentName(flag))->group(kGroup);
}

bool IsNumericAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsWildcard(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == htonl(INADDR_ANY);
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool HasCredentials(const RankOptions& ranks) {
  const char* secret = std::getenv(kRankSecretVariable);  // NOLINT(concurrency-mt-unsafe)
  return !ranks.secret_file.empty() || !ranks.tls_cert.empty() || (secret != nullptr && *secret != '\0');
}

// The first flag of those that only make sense with rank processes here; null: none was given.
const char* FrontFlag(const RankOptions& ranks) {
  if (ranks.local_ranks >= 0) return "--local-ranks";
  if (ranks.port != 0) return "--rank-port";
  return nullptr;
}

const char* NetworkFlag(const RankOptions& ranks) {
  if (ranks.host != RankOptions().host) return "--rank-host";
  if (!ranks.interface.empty()) return "--rank-interface";
  if (!ranks.secret_file.empty()) return "--rank-secret-file";
  if (!ranks.tls_cert.empty() || !ranks.tls_key.empty() || !ranks.tls_ca.empty()) return "--rank-tls-…";
  return nullptr;
}

// Where rows are exchanged.
Status CheckExchangeAddress(const RankOptions& ranks) {
  if (ranks.interface.empty()) {
    if (IsWildcard(ranks.host)) {
      return InvalidError("--rank-host ", ranks.host,
                          " does not say at which address ranks of this machine exchange rows: name one address, or "
                          "give --rank-interface");
    }
    if (ranks.host != "localhost" && !IsNumericAddress(ranks.host)) {
      return InvalidError("--rank-host ", ranks.host,
                          " is a name: ranks exchange rows at a numeric address; give that, or --rank-interface");
    }
  }
  const bool loopback = ranks.interface.empty() ? IsLoopbackHost(ranks.host) : ranks.interface == "lo";
  if (!loopback && !ranks.trusted_network) {
    return InvalidError(
        ranks.interface.empty() ? "--rank-host " + ranks.host : "--rank-interface " + ranks.interface,
        ": ranks exchange rows neither encrypted nor authenticated. If nobody else is on that network, say "
        "--trusted-rank-network");
  }
  return Status();
}

Status CheckTls(const RankOptions& ranks) {
  const int given = !ranks.tls_cert.empty() + !ranks.tls_key.empty() + !ranks.tls_ca.empty();
  if (given == 0 || given == 3) return Status();
  return InvalidError("--rank-tls-cert, --rank-tls-key and --rank-tls-ca go together: both sides show a certificate");
}

Status CheckJoin(const ServerOptions& options) {
  const RankOptions& ranks = options.ranks;
  if (const char* flag = FrontFlag(ranks); flag != nullptr) {
    return InvalidError(flag, " is for the front; --join makes this process one rank of another");
  }
  if (ranks.in_process) return InvalidError("--ranks-in-process and --join contradict each other");
  if (options.engine.expert_parallel_size > 1) {
    return InvalidError("--expert-parallel-size is for the front; with --join the front says it");
  }
  MOE_ASSIGN_OR_RETURN(const HostPort front, ParseHostPort(ranks.join));
  MOE_RETURN_IF_ERROR(CheckTls(ranks));
  if (!IsLoopbackHost(front.host)) {
    if (!HasCredentials(ranks)) {
      return InvalidError("--join ", ranks.join,
                          ": a front beyond this machine takes only ranks with --rank-secret-file or --rank-tls-…");
    }
    if (ranks.interface.empty() && IsLoopbackHost(ranks.host)) {
      return InvalidError("--join ", ranks.join, ": ranks of other machines cannot reach this one at --rank-host ",
                          ranks.host, "; give its address, or --rank-interface");
    }
  }
  return CheckExchangeAddress(ranks);
}

}  // namespace

void AddRankFlags(CLI::App* app, ServerOptions* all) {
  RankOptions* options = &all->ranks;
  AddFlag(app, "--local-ranks", options->local_ranks,
          "Rank processes to start on this machine; the others come with --join. Default: --expert-parallel-size")
      ->check(CLI::Range(0, 256))
      ->default_str("")
      ->group(kGroup);
  AddSwitch(app, "--ranks-in-process", options->in_process,
            "Ranks as threads of this process: none can die alone, none can join");
  AddFlag(app, "--rank-host", options->host,
          "Address where ranks join this front, and where local ranks exchange rows; with --join: the address of this "
          "rank for that")
      ->group(kGroup);
  AddFlag(app, "--rank-port", options->port, "Port where ranks join this front; 0: a free one, printed at the start")
      ->check(CLI::Range(0, 65535))
      ->group(kGroup);
  AddFlag(app, "--rank-interface", options->interface,
          "Network interface where ranks exchange rows, instead of the address --rank-host")
      ->group(kGroup);
  AddFlag(app, "--rank-transport", all->engine.rank_transport,
          "What carries rows between rank processes: tcp, or gloo where this build has it. The front says it for all")
      ->check(CLI::IsMember({"tcp", "gloo"}))
      ->group(kGroup);
  AddSwitch(app, "--trusted-rank-network", options->trusted_network,
            "Allows rows to be exchanged beyond this machine, neither encrypted nor authenticated: only where nobody "
            "else is");
  AddFlag(app, "--rank-secret-file", options->secret_file,
          "File with the secret that ranks show to the front, the same on both sides (or the secret itself in "
          "MOE_RANK_SECRET). Not encrypted by itself: see --rank-tls-cert")
      ->group(kGroup);
  AddFlag(app, "--rank-tls-cert", options->tls_cert,
          "This side's certificate (PEM): joining is encrypted, and both "
          "sides show one")
      ->group(kGroup);
  AddFlag(app, "--rank-tls-key", options->tls_key, "Its key (PEM)")->group(kGroup);
  AddFlag(app, "--rank-tls-ca", options->tls_ca, "The authority that the other side's certificate must be from (PEM)")
      ->group(kGroup);
  AddFlag(app, "--rank-heartbeat-timeout", options->heartbeat_timeout_seconds,
          "Seconds without a sign of life after which the front gives a rank up; ranks send one every 0.1 s")
      ->check(FiniteRange(0.3, 3600.0))
      ->group(kGroup);
  AddFlag(app, "--rank-restart-delay", options->restart_delay_seconds,
          "A local rank that dies within 10 s of its start, again and again, is started again after so many seconds, "
          "then twice as many, up to 30; 0: always at once")
      ->check(FiniteRange(0.0, 30.0))
      ->group(kGroup);
  AddFlag(app, "--join", options->join, "HOST:PORT of a front: be one of its ranks, and serve no clients")
      ->group(kGroup);
  AddFlag(app, "--join-timeout", options->join_timeout_seconds, "Seconds to wait for the front")
      ->check(FiniteRange(0.0, 86400.0 * 365))
      ->group(kGroup);
  AddSwitch(app, "--rejoin", options->rejoin, "When the front is lost, wait for it and join again");
}

bool HasRankProcesses(const ServerOptions& options) {
  return options.ranks.join.empty() && options.engine.expert_parallel_size > 1 && !options.ranks.in_process;
}

int LocalRanks(const ServerOptions& options) {
  return options.ranks.local_ranks < 0 ? options.engine.expert_parallel_size : options.ranks.local_ranks;
}

StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostPort parts;
  if (colon != std::string::npos && colon > 0) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, parts.port);
    parts.host = text.substr(0, colon);
    const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
    if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
    const bool plain = bracketed || parts.host.find(':') == std::string::npos;
    if (error == std::errc() && stop == end && parts.port >= 1 && parts.port <= 65535 && plain && !parts.host.empty()) {
      return parts;
    }
  }
  return InvalidError("--join: ", text, " is not HOST:PORT (an IPv6 address in brackets)");
}

Status CheckRankFlags(const ServerOptions& options) {
  const RankOptions& ranks = options.ranks;
  if (!ranks.join.empty()) return CheckJoin(options);
  if (ranks.rejoin) return InvalidError("--rejoin is of no use without --join");
  const int size = options.engine.expert_parallel_size;
  if (!HasRankProcesses(options)) {
    const char* flag = FrontFlag(ranks) != nullptr ? FrontFlag(ranks) : NetworkFlag(ranks);
    if (flag == nullptr) return Status();
    return InvalidError(flag, " is for rank processes; ", size > 1 ? "--ranks-in-process" : "--expert-parallel-size 1",
                        " has none");
  }
  MOE_ASSIGN_OR_RETURN(const ExchangeTransport transport, ParseTransport(options.engine.rank_transport));
  MOE_RETURN_IF_ERROR(Annotate(CheckTransport(transport), "--rank-transport"));
  if (ranks.local_ranks > size) {
    return InvalidError("--local-ranks ", ranks.local_ranks, " are more than --expert-parallel-size ", size);
  }
  MOE_RETURN_IF_ERROR(CheckTls(ranks));
  if (!IsLoopbackHost(ranks.host) && !HasCredentials(ranks)) {
    return InvalidError("--rank-host ", ranks.host,
                        " can be reached from other machines: ranks may join there only with --rank-secret-file, or "
                        "with --rank-tls-cert, --rank-tls-key and --rank-tls-ca");
  }
  return LocalRanks(options) > 0 ? CheckExchangeAddress(ranks) : Status();
}

}  // namespace moe
