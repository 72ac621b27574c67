// ClusterLink: RankLink over rank processes. It admits ranks, forms groups of them (generations), hands out steps, and
// when a rank is lost abandons the step and forms the next group from the ranks left.
//
//   a rank is lost          the others are told to abandon the step; those that do not answer are lost too
//   a new group             experts that nobody holds any more are read again by those that the plan gives them to;
//                           then all meet under the next generation's number
//   a rank comes            it loads its part while the others compute, then the next group is formed with it
//   rebalancing             ranks load what the new placement adds while steps go on; between two steps it takes effect
//
// No threads, no clock of its own, no randomness: everything comes through RankTransport, so the simulation can run it.
// One thread (the engine loop's) but where said.
#ifndef MOE_ENGINE_CORE_CLUSTER_LINK_H_
#define MOE_ENGINE_CORE_CLUSTER_LINK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/rank_link.h"
#include "engine/core/rank_roster.h"
#include "engine/core/rank_transport.h"

namespace moe {

struct ClusterOptions {
  RankTerms terms;
  int num_slots = 1;
  ExchangeTransport transport = ExchangeTransport::kTcp;
  // After an abandoned step the ranks left keep their sequences (!DraftRollback::Needed).
  bool sequences_survive = false;
  // Seconds.
  double answer_timeout = 2;       // to AbortStep
  double form_timeout = 10;        // to FormGroup
  double prepare_timeout = 600;    // to PrepareExperts in a recovery
  double recovery_timeout = 60;    // without ranks that could go on, until the requests are given up
  std::function<void()> on_event;  // any thread: something came while nobody waited; Settle will see to it
};

// A group to be: its ranks are loading what they lack.
struct PendingGroup {
  GroupPlan plan;
  uint64_t ticket = 0;
  std::vector<int> waiting;  // slots that have not answered
  Status failure;            // of one that has
  bool member_full = false;  // a member has no memory for what is new beside what the group still needs
};

class ClusterLink : public RankLink {
 public:
  // `transport` outlives this.
  ClusterLink(const ModelSpec& spec, const ClusterOptions& options, RankTransport* transport);
  ~ClusterLink() override;  // tells the ranks to leave

  struct Memory {
    int64_t weight_bytes = 0;     // of all ranks
    int64_t available_bytes = 0;  // what caches can have: of the poorest rank, times the ranks
  };
  // Waits until every slot has a rank with its weights loaded. The error of a rank that cannot load ends it, and so do
  // three ranks that are lost on the way.
  StatusOr<Memory> AwaitRanks(const std::function<void(const std::string& stage, double fraction)>& progress);
  // Then: what the ranks' caches are like. Forms the first group.
  Status Begin(const ConfigureRank& caches);

  int num_ranks() const override { return roster_.num_slots(); }
  uint64_t Heartbeat() const override { return transport_->Heartbeat() + signs_.load(std::memory_order_relaxed); }
  StatusOr<StepResult> Step(const StepPlan& plan) override;
  StatusOr<RankChange> Settle(bool wait) override;
  void Interrupt() override { interrupted_ = true; }
  Status Health() const override;  // any thread
  void Rebalance(const std::vector<std::vector<uint64_t>>& loads, int64_t redundant_experts,
                 std::function<void(const Status&)> done) override;
  std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const override { return placements_; }
  RankGroupStats GroupStats() const override;  // any thread

  uint64_t generation() const { return generation_; }
  const RankRoster& roster() const { return roster_; }

 private:
  // --- Events ---
  // Takes the next one if it comes before `until`; false: none came.
  bool TakeEvent(double until);
  void Take(RankTransport::LinkId link, const RankHello& hello);
  void Take(int slot, RankReport report);
  // The slot's rank is gone, or is made to go.
  void Lose(int slot, const std::string& reason, bool close);

  // --- Groups ---
  StatusOr<RankChange> Recover(bool wait);
  // Ranks that wait, or a rebalancing, without keeping steps waiting.
  Status Advance(RankChange* change);
  // Sends PrepareExperts to those who lack something of the plan.
  void Prepare(GroupPlan plan, bool let_go);
  // Waits for pending_.
  Status AwaitPrepared();
  Status Form(GroupPlan plan, RankChange* change);
  // Waits for RankFormed of all; a rank that does not answer is lost.
  Status AwaitFormed();
  void FenceSuspect(bool newcomers);
  void Shun(const std::string& host, int slot);
  void EndRebalance(const Status& status);
  void SetHealth(const Status& status);
  void Note(const std::function<void(RankGroupStats*)>& edit);
  void NoteAlive();
  double Now() const { return transport_->Now(); }

  const ClusterOptions options_;
  RankTransport* const transport_;
  RankRoster roster_;
  std::optional<ConfigureRank> caches_;
  Status load_failure_;  // of AwaitRanks, like the next two
  int start_losses_ = 0;
  Status start_failure_;

  uint64_t generation_ = 0;
  GroupPlan group_;  // of this generation; empty: none is formed
  std::shared_ptr<const std::vector<ExpertPlacement>> placements_;
  bool broken_ = true;  // a member is lost, or a step was abandoned: the group has to be formed anew
  double broken_since_ = 0;
  bool lost_one_ = false;   // a member is lost since the group was formed
  uint64_t undo_step_ = 0;  // the abandoned one
  std::vector<int> lost_;   // slots lost since the last Settle that reported
  RankChange unreported_;   // of Begin, and of a Settle that failed
  int formless_ = 0;        // attempts in a row that failed without a loss

  // What is awaited now.
  uint64_t forming_ = 0;  // generation
  std::vector<int> forming_waiting_;
  Status forming_failure_;
  std::vector<int> suspects_;  // votes: slots
  uint64_t step_ = 0;
  std::vector<std::optional<RankStepDone>> done_;  // by slot
  struct Shunned {
    double pause = 0;  // seconds
    double until = 0;
  };
  std::map<std::string, Shunned> shunned_;  // by host
  std::optional<PendingGroup> pending_;
  uint64_t next_ticket_ = 1;

  std::function<void(const Status&)> rebalance_done_;  // a rebalancing is under way
  std::vector<std::vector<uint64_t>> rebalance_loads_;
  bool rebalance_wanted_ = false;  // not begun yet
  int64_t rebalance_redundant_ = 0;
  int64_t redundant_ = 0;  // replicas of a layer, of the last rebalancing; 0 again when they do not fit any more

  std::atomic<bool> interrupted_{false};
  std::atomic<uint64_t> signs_{0};  // while the group is being formed
  mutable std::mutex mutex_;
  Status health_;         // guarded by mutex_
  RankGroupStats stats_;  // guarded by mutex_
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_CLUSTER_LINK_H_
