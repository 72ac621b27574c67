// ModelLoading: the thread that loads the model while the ports already answer.
#ifndef MOE_SERVER_COMMANDS_MODEL_LOADING_H_
#define MOE_SERVER_COMMANDS_MODEL_LOADING_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "engine/core/engine.h"
#include "parallel/base/status.h"
#include "server/ranks/rank_service.h"
#include "server/server_options.h"

namespace moe {

class ServerCore;

class ModelLoading {
 public:
  // Both outlive this.
  ModelLoading(const ServerOptions& options, ServerCore* core) : options_(options), core_(core) {}
  ~ModelLoading();

  // The ranks are processes. Before Start.
  void SetRanks(std::unique_ptr<GrpcRankTransport> ranks) { ranks_ = std::move(ranks); }
  void Start();
  bool Finished() const { return finished_; }
  // Waits; the result is in core's host, too.
  Status Join();

 private:
  Status Load();
  void Progress(const LoadProgress& progress);

  const ServerOptions& options_;
  ServerCore* const core_;
  std::unique_ptr<GrpcRankTransport> ranks_;  // until the engine has them
  std::thread thread_;
  std::atomic<bool> finished_{false};
  Status result_;  // written before finished_

  std::mutex mutex_;  // progress comes from several threads
  std::string logged_stage_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point logged_at_;
};

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_MODEL_LOADING_H_
