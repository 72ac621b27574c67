// RankNode: a rank process. Follows the front's orders (rank_messages.h) with a RankWorker; decides nothing.
//
// Threads: Run's own reads orders; one executes them in order; one loads experts beside the steps (PrepareExperts). An
// AbortStep is obeyed at once, by the reading thread.
#ifndef MOE_ENGINE_CORE_RANK_NODE_H_
#define MOE_ENGINE_CORE_RANK_NODE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/rank_port.h"
#include "engine/core/rank_worker.h"
#include "engine/model/expert_loader.h"
#include "loaders/model_loader.h"
#include "parallel/rendezvous.h"

namespace moe {

struct RankNodeOptions {
  std::string build;            // RankHello's; empty: BuildName()
  std::string host;             // likewise
  std::string device = "auto";  // EngineOptions::device and cpu_isa: which backends it says it can run
  std::string cpu_isa = "auto";
  int threads = 0;           // 0: usable cores
  int64_t memory_bytes = 0;  // for weights; an order that needs more is refused. 0: what the machine has free
};

class RankNode {
 public:
  // Meets the members of a generation.
  using GroupFactory =
      std::function<StatusOr<std::unique_ptr<Communicator>>(const FormGroup& order, RendezvousStore& store)>;

  // `model` has its weights open. `port` outlives this.
  RankNode(std::unique_ptr<LoadedModel> model, const RankNodeOptions& options, GroupFactory factory, RankPort* port);
  ~RankNode();

  // Until the front says to leave (OK), refuses this rank or is gone.
  Status Run();

  // Whether the computing thread hangs in a step: no sign of progress for longer than any exchange may take. Nobody
  // else sees that, since signs of life come from another thread. To be asked by that one, `seconds` after the last
  // time (which count one by one: a process that was stopped meanwhile does not hang).
  bool Hangs(double seconds);

  // Grows while it computes. Any thread, as long as this lives.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed) + WorkerProgress(); }

 private:
  class Store;

  uint64_t WorkerProgress() const;
  void Take(RankOrder order);
  void ExecuteOrders();
  void LoadExperts();
  Status Load(const LoadRank& order);
  Status Configure(const ConfigureRank& order);
  void Form(const FormGroup& order);
  Status Meet(const FormGroup& order);
  void Step(const RankStep& order);
  Status PrepareNow(const PrepareExperts& order);
  void Leave(const Status& status);
  void Fail(const Status& status);

  std::atomic<double> hang_limit_{0};  // seconds, of the step that is computed; 0: none is
  uint64_t seen_progress_ = 0;         // of the thread that asks Hangs
  double unchanged_seconds_ = 0;

  const std::unique_ptr<LoadedModel> model_;
  const RankNodeOptions options_;
  const GroupFactory factory_;
  RankPort* const port_;

  // Of the executing thread.
  std::string backend_;
  std::string dtype_;
  DType act_ = DType::kF32;
  int threads_ = 1;
  std::unique_ptr<PackedModel> packed_;
  std::shared_ptr<const std::vector<ExpertPlacement>> placements_;
  ExpertLists keep_;  // what the group needs; the rest goes when it has met
  uint64_t generation_ = 0;
  std::unique_ptr<RankWorker> worker_;
  uint64_t last_step_ = 0;  // what the worker executed last; 0: nothing to undo

  std::atomic<const RankWorker*> worker_view_{nullptr};
  std::atomic<uint64_t> progress_{0};

  std::mutex orders_mutex_;
  std::condition_variable orders_changed_;
  std::deque<RankOrder> orders_;  // guarded by orders_mutex_, like the rest
  bool stop_ = false;
  std::optional<PrepareExperts> prepare_;
  Status outcome_;

  std::mutex group_mutex_;
  std::shared_ptr<Store> store_;          // guarded by group_mutex_, of the generation that forms; like the rest
  Communicator* communicator_ = nullptr;  // of generation_of_group_
  uint64_t generation_of_group_ = 0;
  std::map<uint64_t, std::string> aborted_;  // generations that were given up, and why

  std::mutex loader_mutex_;  // held while experts are loaded or let go of
  std::unique_ptr<WorkerPool> loader_pool_;
  std::unique_ptr<Backend> loader_backend_;
  std::unique_ptr<ExpertLoader> loader_;
  std::atomic<bool> cancel_loading_{false};

  std::thread executor_;
  std::thread loading_;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_NODE_H_
