#include "engine/core/local_ranks.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/core/balanced_placements.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

class LocalRanks : public RankLink {
 public:
  LocalRanks(std::vector<std::unique_ptr<RankWorker>> workers,
             std::shared_ptr<const std::vector<ExpertPlacement>> placements)
      : workers_(std::move(workers)), results_(workers_.size()), placements_(std::move(placements)) {
    for (size_t r = 1; r < workers_.size(); ++r) threads_.emplace_back([this, r] { RankThread(r); });
  }

  ~LocalRanks() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int num_ranks() const override { return static_cast<int>(workers_.size()); }

  uint64_t Heartbeat() const override {
    uint64_t sum = 0;
    for (const std::unique_ptr<RankWorker>& worker : workers_) sum += worker->heartbeat();
    return sum;
  }

  StatusOr<StepResult> Step(const StepPlan& plan) override {
    MOE_CHECK_EQ(plan.ranks.size(), workers_.size());
    if (workers_.size() > 1) {
      {
        const std::lock_guard lock(mutex_);
        plan_ = &plan;
        ++step_;
        running_ = workers_.size() - 1;
      }
      changed_.notify_all();
    }
    Execute(0, plan);
    if (workers_.size() > 1) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return running_ == 0; });
    }
    StepResult result = std::move(spare_);
    result.step = plan.step;
    result.ranks.resize(workers_.size());
    for (size_t r = 0; r < workers_.size(); ++r) {
      if (!results_[r]->ok()) return Fatal(results_[r]->status());
      result.ranks[r] = *std::move(*results_[r]);
    }
    return result;
  }

  void Recycle(StepResult result) override {
    for (size_t r = 0; r < result.ranks.size(); ++r) workers_[r]->Recycle(std::move(result.ranks[r]));
    spare_ = std::move(result);
  }

  StatusOr<RankChange> Settle(bool) override {
    RankChange change;
    change.moved = std::exchange(moved_, false);
    return change;
  }

  void Rebalance(const std::vector<std::vector<uint64_t>>& loads, int64_t redundant_experts,
                 std::function<void(const Status&)> done) override {
    if (workers_.size() == 1) return done(UnsupportedError("there is one rank: nothing to balance"));
    StatusOr<std::vector<ExpertPlacement>> balanced = BalancedPlacements(loads, *placements_, redundant_experts);
    if (!balanced.ok()) return done(balanced.status());
    placements_ = std::make_shared<const std::vector<ExpertPlacement>>(*std::move(balanced));
    for (const std::unique_ptr<RankWorker>& worker : workers_) worker->SetPlacements(*placements_);
    ++rebalances_;
    moved_ = true;
    done(absl::OkStatus());
  }

  std::shared_ptr<const std::vector<ExpertPlacement>> Placements() const override { return placements_; }
  RankGroupStats GroupStats() const override {
    RankGroupStats stats;
    stats.generation = 1;
    stats.ranks_alive = num_ranks();
    stats.rebalances = rebalances_;
    return stats;
  }

 private:
  // Threads of this process do not get lost: what fails will fail again.
  static Status Fatal(const Status& status) {
    return absl::IsUnavailable(status) ? absl::InternalError(status.message()) : status;
  }

  void Execute(size_t rank, const StepPlan& plan) {
    results_[rank] = workers_[rank]->Execute(plan.ranks[rank]);
    // The others may be waiting for this rank in an exchange.
    if (!results_[rank]->ok()) workers_[rank]->Abort(Cat("rank ", rank, ": ", results_[rank]->status().ToString()));
  }

  void RankThread(size_t rank) {
    uint64_t seen = 0;
    for (;;) {
      const StepPlan* plan = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || step_ != seen; });
        if (stop_) return;
        seen = step_;
        plan = plan_;
      }
      Execute(rank, *plan);
      {
        const std::lock_guard lock(mutex_);
        --running_;
      }
      changed_.notify_all();
    }
  }

  std::vector<std::unique_ptr<RankWorker>> workers_;
  std::vector<std::optional<StatusOr<RankResult>>> results_;  // slot r is written by rank r's thread during a step
  StepResult spare_;                                          // memory of the next result
  std::shared_ptr<const std::vector<ExpertPlacement>> placements_;
  std::atomic<uint64_t> rebalances_{0};
  bool moved_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  const StepPlan* plan_ = nullptr;  // these four guarded by mutex_
  uint64_t step_ = 0;
  size_t running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<RankLink> CreateLocalRanks(std::vector<std::unique_ptr<RankWorker>> workers,
                                           std::shared_ptr<const std::vector<ExpertPlacement>> placements) {
  MOE_CHECK(!workers.empty());
  return std::make_unique<LocalRanks>(std::move(workers), std::move(placements));
}

}  // namespace moe
