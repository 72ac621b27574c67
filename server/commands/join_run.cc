#include "server/commands/join_run.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/core/rank_node.h"
#include "loaders/model_files.h"
#include "loaders/model_loader.h"
#include "parallel/base/log.h"
#include "parallel/exchange_transport.h"
#include "server/commands/rank_processes.h"
#include "server/commands/signals.h"
#include "server/ranks/rank_client.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeaveTime{2000};   // from a signal to the end at the latest
constexpr double kFirstRejoinSeconds = 1;  // doubled up to
constexpr double kLongestRejoinSeconds = 30;
constexpr double kTellFailureSeconds = 5;

// Ends the process from a state in which threads cannot be joined. It has nothing to lose.
[[noreturn]] void ExitNow(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

// This machine, until it starts again: ranks with the same one share memory.
std::string HostIdentity() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return Cat(name, " (", boot.substr(0, 8), ")");
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? "" : value;
}

StatusOr<std::unique_ptr<LoadedModel>> OpenModel(const std::string& path) {
  std::unique_ptr<ModelFiles> files;
  if (path.empty()) {
    files = OpenEmbeddedDemo();
  } else {
    MOE_ASSIGN_OR_RETURN(files, OpenModelDirectory(path));
  }
  return LoadModel(*files, LoadOptions{});
}

// A stop signal ends the connection, and so the rank; before there is one, or when that takes long, the process.
class Stopper {
 public:
  Stopper() : thread_([this] { Loop(); }) {}
  ~Stopper() {
    done_ = true;
    thread_.join();
  }

  void SetPort(RankPort* port) {
    std::lock_guard lock(mutex_);
    port_ = port;
  }
  bool stopped() const { return stopped_; }

 private:
  void Loop() {
    int signal = 0;
    while (signal == 0) {
      if (done_) return;
      signal = WaitForStopSignal(milliseconds(100));
    }
    MOE_LOG(kInfo) << "signal " << signal << ": this rank leaves";
    stopped_ = true;
    {
      std::lock_guard lock(mutex_);
      if (port_ == nullptr) ExitNow(kExitDrained);
      port_->Close();
    }
    const auto until = std::chrono::steady_clock::now() + kLeaveTime;
    while (!done_) {
      if (WaitForStopSignal(milliseconds(20)) != 0 || std::chrono::steady_clock::now() >= until) ExitNow(kExitDrained);
    }
  }

  std::atomic<bool> done_{false};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  RankPort* port_ = nullptr;  // guarded by mutex_
  std::thread thread_;
};

class JoinProcess {
 public:
  JoinProcess(const ServerOptions& options, const RankClientOptions& client) : options_(options), client_(client) {}

  int Run() {
    double pause = kFirstRejoinSeconds;
    for (;;) {
      auto model = OpenModel(options_.model);
      if (!model.ok()) return BadModel(model.status());
      const auto began = std::chrono::steady_clock::now();
      const Status status = Once(*std::move(model));
      if (status.ok() || stopper_.stopped()) {
        MOE_LOG(kInfo) << "this rank has left " << options_.ranks.join;
        return kExitDrained;
      }
      MOE_LOG(kError) << "rank of " << options_.ranks.join << ": " << DescribeError(status);
      if (!options_.ranks.rejoin || absl::IsUnauthenticated(status)) return kExitInternal;
      if (std::chrono::steady_clock::now() - began > std::chrono::duration<double>(kLongestRejoinSeconds)) {
        pause = kFirstRejoinSeconds;
      }
      MOE_LOG(kInfo) << "joining again in " << pause << " s";
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
      pause = std::min(2 * pause, kLongestRejoinSeconds);
    }
  }

 private:
  // One stay in the group.
  Status Once(std::unique_ptr<LoadedModel> model) {
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcRankPort> port, GrpcRankPort::Connect(client_));
    RankNodeOptions node_options;
    node_options.host = HostIdentity();
    node_options.device = options_.engine.device;
    node_options.cpu_isa = options_.engine.cpu_isa;
    node_options.threads = options_.engine.threads;
    const auto group = [this](const FormGroup& order, RendezvousStore& store) { return Meet(order, store); };
    RankNode node(std::move(model), node_options, group, port.get());
    stopper_.SetPort(port.get());
    port->SetProgress([this, &node] {
      if (node.Hangs(client_.heartbeat_seconds)) {
        MOE_LOG(kError) << "the computing thread hangs in a step; this rank ends";
        _exit(kExitInternal);  // a thread that hangs cannot be waited for
      }
      return node.progress();
    });
    Status status = node.Run();
    port->SetProgress(nullptr);
    stopper_.SetPort(nullptr);
    return status;
  }

  StatusOr<std::unique_ptr<Communicator>> Meet(const FormGroup& order, RendezvousStore& store) const {
    GroupOptions group;
    group.rank = order.member;
    group.size = order.size;
    group.generation = order.generation;
    // Less than the front waits (ClusterOptions::form_timeout), so that the attempt ends with a reason.
    group.rendezvous_timeout = milliseconds(5000);
    const RankOptions& ranks = options_.ranks;
    group.interface = ranks.interface;
    if (ranks.interface.empty()) group.address = ranks.host == "localhost" ? "127.0.0.1" : ranks.host;
    return CreateCommunicator(order.transport, group, store);
  }

  // A front that waits for this process had better know why it does not come.
  int BadModel(const Status& status) {
    MOE_LOG(kError) << "cannot load " << (options_.model.empty() ? "the demo model" : options_.model) << ": "
                    << DescribeError(status);
    if (client_.process.empty()) return kExitBadModel;
    RankClientOptions client = client_;
    client.join_timeout_seconds = std::min(client.join_timeout_seconds, kTellFailureSeconds);
    if (auto port = GrpcRankPort::Connect(client); port.ok()) (*port)->Report(RankFailed{status});
    return kExitBadModel;
  }

  const ServerOptions& options_;
  const RankClientOptions client_;
  Stopper stopper_;
};

}  // namespace

int RunJoin(const ServerOptions& options) {
  const RankOptions& ranks = options.ranks;
  RankClientOptions client;
  client.target = ranks.join;
  client.join_timeout_seconds = ranks.join_timeout_seconds;
  client.process = FromEnvironment(kRankProcessVariable);
  auto secret = ConfiguredRankSecret(ranks);
  auto tls = ReadRankTls(ranks.tls_cert, ranks.tls_key, ranks.tls_ca);
  for (const Status& status : {secret.status(), tls.status()}) {
    if (status.ok()) continue;
    MOE_LOG(kError) << status.message();
    return kExitBadFlags;
  }
  client.secret = *std::move(secret);
  client.tls = *std::move(tls);
  return JoinProcess(options, client).Run();
}

}  // namespace moe
