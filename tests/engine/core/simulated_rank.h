// A rank process of a SimulatedCluster: what RankNode does, one event at a time.
#ifndef MOE_TESTS_ENGINE_CORE_SIMULATED_RANK_H_
#define MOE_TESTS_ENGINE_CORE_SIMULATED_RANK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/rank_messages.h"
#include "engine/core/rank_transport.h"
#include "tests/engine/core/simulated_cluster.h"
#include "tests/engine/core/toy_ranks.h"

namespace moe::toy {

class SimulatedRank {
 public:
  // seat: -1: a stranger, whom the front must refuse.
  SimulatedRank(SimulatedCluster* cluster, int pid, RankTransport::LinkId link, int seat, RankHello hello);

  const int pid;
  const RankTransport::LinkId link;
  const int seat;
  double slow = 1;  // factor

  void Start();
  void Take(RankOrder order);  // the reading thread
  void HangUp();               // the connection has ended

  void Kill();  // SIGKILL
  void Stop();  // SIGSTOP
  void Continue();
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }

  uint64_t generation() const { return generation_; }  // 0: none
  // Those that wait in the generation's exchange look again.
  void Look(uint64_t generation);

 private:
  struct Exchange {
    uint64_t generation = 0;
    uint64_t step = 0;
    int64_t parts = 0;  // it has come to that many
  };

  // Runs `what` after so long, later if it is stopped then; not at all once it has ended.
  void After(double seconds, std::function<void()> what);
  void Later(std::function<void()> what);  // likewise, now
  double Some(double mean);                // a duration
  void Moment(const char* what);
  std::string name() const;
  void End(bool by_itself);

  // --- Executing ---
  void Next();  // takes the next order if none is being executed
  void Done();
  void Load(const LoadRank& order);
  void LoadMore(double fraction);
  void Form(const FormGroup& order);
  void LookForOthers();
  void Connect();
  void Formed(const Status& status, int suspect);
  void Step(RankStep order);
  void Arrive();
  void TryExchange();
  void Finish();
  void FailStep(const Status& status, int suspect);
  void AbortGroup();
  int FirstMissing() const;  // member; -1: none
  // --- Loading ---
  void Prepare(const PrepareExperts& order);
  void CancelPrepare();
  void Prepared(const Status& status);

  SimulatedCluster* const cluster_;
  const RankHello hello_;
  bool alive_ = true;
  bool stopped_ = false;
  bool hung_up_ = false;
  std::vector<std::function<void()>> when_continued_;

  std::deque<RankOrder> orders_;
  bool busy_ = false;
  uint64_t task_ = 0;  // number of what is being executed; timers of others are void

  bool loaded_ = false;
  ExpertLists held_;
  std::optional<ToyRank> toy_;
  uint64_t last_step_ = 0;
  uint64_t generation_ = 0;
  std::vector<ExpertPlacement> placements_;
  int member_ = 0;
  std::vector<int> peers_;     // [members] pids
  bool group_broken_ = false;  // its communicator was aborted
  std::map<uint64_t, std::string> aborted_;

  std::optional<FormGroup> forming_;
  uint64_t store_generation_ = 0;  // FormGroup has come, perhaps not been executed yet
  std::map<std::string, std::string> store_;
  bool connecting_ = false;
  double meet_until_ = 0;

  std::optional<RankStep> step_;
  bool waits_ = false;  // in an exchange
  Exchange exchange_;   // the last one
  double exchange_until_ = 0;

  std::optional<PrepareExperts> prepare_;
  uint64_t prepare_number_ = 0;
  int64_t prepare_next_ = 0;
};

int64_t CountExperts(const ExpertLists& lists);

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_SIMULATED_RANK_H_
