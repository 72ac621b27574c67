// ThreadCluster: RankTransport whose rank processes are RankNodes on threads of the test. Killing one looks as it does
// from outside: its connection ends and its exchanges fail.
#ifndef MOE_TESTS_ENGINE_CORE_THREAD_CLUSTER_H_
#define MOE_TESTS_ENGINE_CORE_THREAD_CLUSTER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/rank_node.h"
#include "engine/core/rank_transport.h"

namespace moe {

class ThreadCluster : public RankTransport {
 public:
  using ModelFactory = std::function<std::unique_ptr<LoadedModel>()>;
  // `sockets`: rows go over the transport that the front names, else through memory.
  ThreadCluster(ModelFactory model, bool sockets);
  ~ThreadCluster() override;

  // A process starts. Any thread, like all here but Wait, Send and Close.
  LinkId Start(const RankNodeOptions& options = {.build = {}, .host = "here", .threads = 1});
  void Kill(LinkId link);
  std::vector<LinkId> Alive() const;
  // What a rank's process ended with; waits for it.
  Status Outcome(LinkId link);

  double Now() const override;
  std::optional<Event> Wait(double until) override;
  void Send(LinkId link, RankOrder order) override;
  void Close(LinkId link, const std::string& reason) override;
  void SetWake(std::function<void()> wake) override;
  uint64_t Heartbeat() const override { return 0; }

 private:
  class Port;
  struct Process;
  StatusOr<std::unique_ptr<Communicator>> Meet(const FormGroup& order, RendezvousStore& store);
  void Report(LinkId link, RankReport report);
  void Ended(LinkId link, const std::string& reason);

  const ModelFactory model_;
  const bool sockets_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wake_;  // guarded by mutex_, like the rest
  std::deque<Event> events_;
  std::map<LinkId, std::unique_ptr<Process>> processes_;                   // also those that have ended
  std::map<uint64_t, std::vector<std::unique_ptr<Communicator>>> groups_;  // in process: by generation
  bool waiting_ = false;
  LinkId next_link_ = 1;
};

}  // namespace moe

#endif  // MOE_TESTS_ENGINE_CORE_THREAD_CLUSTER_H_
