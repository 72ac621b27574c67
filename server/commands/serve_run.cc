#include "server/commands/serve_run.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/tools/exhaustion.h"
#include "parallel/base/log.h"
#include "server/admin_http.h"
#include "server/commands/banner.h"
#include "server/commands/housekeeping.h"
#include "server/commands/join_run.h"
#include "server/commands/model_loading.h"
#include "server/commands/rank_flags.h"
#include "server/commands/rank_processes.h"
#include "server/commands/signals.h"
#include "server/grpc_server.h"
#include "server/listen_address.h"
#include "server/metrics.h"
#include "server/server_core.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

std::string ServedName(const ServerOptions& options) {
  if (!options.served_model_name.empty()) return options.served_model_name;
  if (options.model.empty()) return kEmbeddedDemoName;
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(options.model, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "models/x/" → "models/x"
  return path.has_filename() ? path.filename().string() : "model";
}

// Ends the process from a state in which threads cannot be joined.
[[noreturn]] void ExitNow(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

int PortError(const char* flag, const Status& status) {
  if (status.code() == absl::StatusCode::kAlreadyExists) {
    MOE_LOG(kError) << flag << ": " << status.message() << "; choose another port or stop the other process";
    return kExitPortTaken;
  }
  MOE_LOG(kError) << status.message();
  return kExitBadFlags;
}

class ServeProcess {
 public:
  explicit ServeProcess(const ServerOptions& options)
      : options_(options),
        core_(ServedName(options), options),
        metrics_(&core_, options.metrics_per_expert),
        loader_(options, &core_) {}

  int Run() {
    LogStart();
    if (const int code = OpenPorts(); code != 0) return code;
    MOE_LOG(kInfo) << "gRPC port " << grpc_->address() << " is open; health says NOT_SERVING until the model is there";
    housekeeping_ = std::make_unique<Housekeeping>(&core_);
    loader_.Start();
    while (!loader_.Finished()) {
      if (WaitForStopSignal(milliseconds(20)) == 0) continue;
      MOE_LOG(kInfo) << "stopped while loading";
      ExitNow(kExitDrained);
    }
    if (const Status loaded = loader_.Join(); !loaded.ok()) {
      MOE_LOG(kError) << "cannot serve " << (options_.model.empty() ? "the demo model" : options_.model) << ": "
                      << DescribeError(loaded);
      StopServers();
      return kExitBadModel;
    }
    LogReady();
    SetExhaustionExitCode(kExitInternal);
    int signal = 0;
    while (signal == 0) signal = WaitForStopSignal(milliseconds(1000));
    return DrainAndStop(signal);
  }

 private:
  void LogStart() {
    std::string changed;
    for (const std::string& flag : options_.non_default) changed += " " + flag;
    MOE_LOG(kInfo) << "moe " << MOE_VERSION << " starting"
                   << (changed.empty() ? ", all settings at their defaults" : ":") << changed;
    if (options_.host != "127.0.0.1" && options_.host != "::1" && options_.host != "localhost") {
      MOE_LOG(kWarning) << "listening on " << options_.host
                        << " without authentication: anyone who reaches this port can use and drain the server";
    }
  }

  int OpenPorts() {
    GrpcServerOptions grpc_options;
    grpc_options.host = options_.host;
    grpc_options.port = options_.port;
    grpc_options.max_message_bytes = options_.max_message_bytes;
    auto grpc = [&] {
      const AbortMeansExhaustion guard;
      return GrpcServer::Start(&core_, grpc_options);
    }();
    if (!grpc.ok()) return PortError("--port", grpc.status());
    grpc_ = *std::move(grpc);
    if (const int code = OpenRanks(); code != 0) {
      StopServers();
      return code;
    }
    if (options_.admin_port == 0) return 0;
    auto admin = AdminHttp::Start(options_.host, options_.admin_port, AdminPages(&core_.host(), &metrics_));
    if (!admin.ok()) {
      StopServers();
      return PortError("--admin-port", admin.status());
    }
    admin_ = *std::move(admin);
    return 0;
  }

  int OpenRanks() {
    if (!HasRankProcesses(options_)) return 0;
    auto ranks = OpenRankPort(options_);
    if (!ranks.ok()) return PortError("--rank-port", ranks.status());
    MOE_LOG(kInfo) << "ranks join at " << (*ranks)->address() << "; " << LocalRanks(options_) << " of "
                   << options_.engine.expert_parallel_size << " are started here";
    loader_.SetRanks(*std::move(ranks));
    return 0;
  }

  void LogReady() {
    const ServedModel& served = *core_.host().model();
    for (const std::string& line : BannerLines(served.name, *served.engine)) {
      MOE_LOG(kInfo) << line;
    }
    const std::string admin =
        admin_ == nullptr ? "" : Cat(", admin http://", JoinHostPort(options_.host, admin_->port()), "/metrics");
    MOE_LOG(kInfo) << "listening on " << grpc_->address() << admin;
  }

  int DrainAndStop(int signal) {
    const double timeout = options_.shutdown_timeout_seconds;
    MOE_LOG(kInfo) << "signal " << signal << ": draining " << core_.calls().size() << " requests, at most " << timeout
                   << " s; a second signal ends at once";
    std::atomic<bool> drained{false};
    std::atomic<uint32_t> cut{0};
    housekeeping_->Hurry();
    core_.Drain(timeout > 0 ? timeout : 1e-9, [&](uint32_t, uint32_t cancelled) {
      cut = cancelled;
      drained = true;
    });
    // The ended ones' last messages need a moment; a client that does not read gets no more than that.
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout + 2);
    while (!drained && std::chrono::steady_clock::now() < give_up) {
      if (const int second = WaitForStopSignal(milliseconds(10)); second != 0) {
        MOE_LOG(kWarning) << "second signal: ending at once, " << core_.calls().size() << " requests are cut";
        ExitNow(128 + second);
      }
    }
    if (cut > 0 || !drained) {
      MOE_LOG(kWarning) << "the drain's time is over: " << cut << " requests were ended early";
    }
    StopServers();
    if (!core_.host().model()->engine->Health(10).ok()) ExitNow(kExitInternal);  // its threads cannot be joined
    MOE_LOG(kInfo) << "drained, goodbye";
    return kExitDrained;
  }

  void StopServers() {
    if (grpc_ != nullptr) grpc_->Shutdown(0.5);
    housekeeping_.reset();
    admin_.reset();
  }

  const ServerOptions& options_;
  ServerCore core_;
  Metrics metrics_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<AdminHttp> admin_;
  std::unique_ptr<Housekeeping> housekeeping_;
  ModelLoading loader_;
};

}  // namespace

int RunServe(const ServerOptions& options) {
  SetLogLevel(options.log_level);
  SetLogFormat(options.log_format);
  BlockStopSignals();
  // gRPC's own lines name internals of its; what matters of them we say ourselves.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  if (const Status status = CheckRankFlags(options); !status.ok()) {
    MOE_LOG(kError) << status.message();
    return kExitBadFlags;
  }
  if (!options.ranks.join.empty()) return RunJoin(options);
  return ServeProcess(options).Run();
}

}  // namespace moe
