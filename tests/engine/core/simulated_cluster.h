// Rank processes, the network between them and to the front, and what befalls them, in virtual time. The processes
// follow the orders as RankNode does, with a ToyRank for a RankWorker.
#ifndef MOE_TESTS_ENGINE_CORE_SIMULATED_CLUSTER_H_
#define MOE_TESTS_ENGINE_CORE_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/rank_roster.h"
#include "engine/core/rank_transport.h"
#include "tests/engine/core/simulated_world.h"

namespace moe::toy {

class SimulatedRank;

// What a simulation is like. Seconds.
struct ClusterConditions {
  RankTerms terms;
  SchedulerOptions scheduler;
  int seats = 1;           // processes that right ranks run in, each started again when it ends
  int64_t capacity = 0;    // experts that fit in a process, over all layers
  int64_t step_parts = 1;  // exchanges of a step
  double latency = 0.0005;
  double compute = 0.005;  // of a part of a step
  double load = 0.2;
  double load_expert = 0.02;  // of PrepareExperts
  double connect = 0.02;
  double heartbeat_timeout = 1;
  double exchange_timeout = 1;
  double meet_timeout = 1.5;
  double restart = 0.5;  // mean
  double restarts = 1;   // probability that a process that ended comes back
  double calm = 10;      // from then on nothing happens to anybody, and all come back
  double moment = 0.01;  // probability of a fault at each moment that is prone to one
  double mean_between_faults = 1;
  int64_t faults = 4;            // at most
  double strangers = 0;          // probability of a process that does not belong here, when another one starts
  double stale = 0.02;           // probability that an old report comes again behind another one
  bool killed_for_good = false;  // at some time, some end and do not come back, not even in the calm
};

class SimulatedCluster : public RankTransport {
 public:
  SimulatedCluster(SimulatedWorld* world, const ClusterConditions& conditions);
  ~SimulatedCluster() override;

  // --- RankTransport ---
  double Now() const override { return world_->now(); }
  std::optional<Event> Wait(double until) override;
  void Send(LinkId link, RankOrder order) override;
  void Close(LinkId link, const std::string& reason) override;
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }
  uint64_t Heartbeat() const override { return heartbeat_; }

  // Faults begin.
  void Begin();
  // A process of this host cannot be started.
  void CannotStart(const Status& why) { Push({0, RankFailed{why}}); }
  bool calm() const { return world_->now() >= conditions_.calm; }
  // The experts that all processes, those that are to come too, can hold.
  int64_t Capacity() const;
  int64_t faults() const { return faults_; }
  uint64_t undone() const { return undone_; }
  uint64_t stale_reports() const { return stale_reports_; }
  std::function<void()> on_wait;  // whenever the front waits
  // Ranks that said RESOURCE_EXHAUSTED since this was last set to 0.
  int exhausted = 0;

  // --- For the processes ---
  SimulatedWorld& world() { return *world_; }
  const ClusterConditions& conditions() const { return conditions_; }
  void Report(SimulatedRank* rank, RankReport report);
  // A moment at which a fault is of interest.
  void Moment(SimulatedRank* rank, const char* what);
  bool Reach(const SimulatedRank* a, const SimulatedRank* b) const;
  SimulatedRank* Process(int pid) const { return processes_[pid].get(); }
  // Something changed for those that wait in a generation's exchanges.
  void ExchangeChanged(uint64_t generation);
  // The process has ended.
  void Ended(SimulatedRank* rank, bool by_itself);
  void Beat() { ++heartbeat_; }
  void NoteUndone() { ++undone_; }

 private:
  struct Connection {
    SimulatedRank* rank = nullptr;
    bool open = true;  // for the front
    bool cut = false;  // what is under way to the front is lost
    double to_front = 0, to_rank = 0;
    std::vector<RankReport> said;  // some of it
  };

  void Spawn(int seat);
  void SpawnStranger();
  void Deliver(LinkId link, RankReport report);
  void Push(Event event);
  void CloseLater(LinkId link, double seconds, const std::string& reason);
  void NextFault();
  void Fault(SimulatedRank* rank);
  void KillSome(const std::vector<SimulatedRank*>& ranks, const char* why);
  void Pause(SimulatedRank* rank);
  void Partition(SimulatedRank* a, SimulatedRank* b);
  void Calm();
  std::vector<SimulatedRank*> Living() const;
  double Latency();

  SimulatedWorld* const world_;
  const ClusterConditions conditions_;
  std::vector<std::unique_ptr<SimulatedRank>> processes_;  // by pid, also those that have ended
  std::map<LinkId, Connection> links_;
  LinkId next_link_ = 1;
  std::deque<Event> events_;
  std::set<std::pair<int, int>> parted_;  // seats, the lower first
  std::function<void()> wake_;
  bool waiting_ = false;
  bool begun_ = false;
  uint64_t heartbeat_ = 0;
  int64_t faults_ = 0;
  uint64_t undone_ = 0;
  uint64_t stale_reports_ = 0;
  std::set<int> dead_seats_;
};

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_SIMULATED_CLUSTER_H_
