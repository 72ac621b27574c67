#include "engine/core/rank_node.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "engine/core/build_name.h"
#include "engine/core/engine_setup.h"
#include "engine/tensor/lazy_memory.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace moe {
namespace {

// Liveness is the front's business; this is the second line, for what its heartbeats do not see. A rank waits in an
// exchange for the slowest one's part of a layer, which grows with the step: far more than that.
std::chrono::milliseconds ExchangeTimeout(int64_t rows) {
  return std::chrono::milliseconds(5'000 + 20 * std::clamp<int64_t>(rows, 0, 1 << 20));
}

constexpr double kHangMargin = 5;  // seconds

}  // namespace

// What the front has handed over of the other members' addresses.
class RankNode::Store : public RendezvousStore {
 public:
  Store(uint64_t generation, RankPort* port) : generation_(generation), port_(port) {}

  uint64_t generation() const { return generation_; }

  Status Set(const std::string& key, const std::string& value) override {
    Put(key, value);
    port_->Report(StoreEntry{generation_, key, value});
    return absl::OkStatus();
  }

  StatusOr<std::string> Wait(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !failure_.ok() || values_.contains(key); });
    MOE_RETURN_IF_ERROR(failure_);
    const auto it = values_.find(key);
    if (it == values_.end()) return absl::DeadlineExceededError(Cat("no ", key, " after ", timeout.count(), " ms"));
    return it->second;
  }

  Status Failure() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void Put(const std::string& key, const std::string& value) {
    {
      const std::lock_guard lock(mutex_);
      values_.emplace(key, value);
    }
    changed_.notify_all();
  }

  void Fail(const Status& failure) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
    }
    changed_.notify_all();
  }

 private:
  const uint64_t generation_;
  RankPort* const port_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
  Status failure_;                             // guarded by mutex_
};

RankNode::RankNode(std::unique_ptr<LoadedModel> model, const RankNodeOptions& options, GroupFactory factory,
                   RankPort* port)
    : model_(std::move(model)), options_(options), factory_(std::move(factory)), port_(port) {
  threads_ = options_.threads > 0 ? options_.threads : UsableCores();
}

RankNode::~RankNode() {
  Leave(absl::CancelledError("the rank ends"));
  if (executor_.joinable()) executor_.join();
  if (loading_.joinable()) loading_.join();
  worker_view_ = nullptr;
}

uint64_t RankNode::WorkerProgress() const {
  const RankWorker* worker = worker_view_.load(std::memory_order_acquire);
  return worker == nullptr ? 0 : worker->heartbeat();
}

bool RankNode::Hangs(double seconds) {
  const double limit = hang_limit_.load(std::memory_order_relaxed);
  const uint64_t now = progress();
  unchanged_seconds_ = limit == 0 || now != seen_progress_ ? 0 : unchanged_seconds_ + seconds;
  seen_progress_ = now;
  return unchanged_seconds_ > limit && limit > 0;
}

Status RankNode::Run() {
  MOE_ASSIGN_OR_RETURN(std::vector<std::string> backends, RunnableBackends(options_.device, options_.cpu_isa));
  port_->Report(RankHello{options_.build.empty() ? BuildName() : options_.build, model_->fingerprint, options_.host,
                          std::move(backends)});
  executor_ = std::thread([this] { ExecuteOrders(); });
  loading_ = std::thread([this] { LoadExperts(); });
  const Status connection = port_->Run([this](RankOrder order) { Take(std::move(order)); });
  Leave(connection);
  executor_.join();
  loading_.join();
  const std::lock_guard lock(orders_mutex_);
  return outcome_;
}

// The first outcome counts.
void RankNode::Leave(const Status& status) {
  {
    const std::lock_guard lock(orders_mutex_);
    if (!std::exchange(stop_, true)) outcome_ = status;
  }
  cancel_loading_ = true;
  orders_changed_.notify_all();
  const std::lock_guard lock(group_mutex_);
  if (store_ != nullptr) store_->Fail(absl::CancelledError("the rank leaves"));
  if (communicator_ != nullptr) communicator_->Abort("the rank leaves");
}

void RankNode::Fail(const Status& status) {
  MOE_LOG(kError) << DescribeError(status);
  port_->Report(RankFailed{status});
  Leave(status);
  port_->Close();
}

// --- The reading thread ---

void RankNode::Take(RankOrder order) {
  if (const auto* abort = std::get_if<AbortStep>(&order)) {
    const std::lock_guard lock(group_mutex_);
    aborted_[abort->generation] = abort->reason;
    while (aborted_.size() > 16) aborted_.erase(aborted_.begin());
    if (store_ != nullptr && store_->generation() == abort->generation) {
      store_->Fail(absl::UnavailableError(abort->reason));
    }
    if (communicator_ != nullptr && generation_of_group_ == abort->generation) communicator_->Abort(abort->reason);
    return;
  }
  if (const auto* entry = std::get_if<StoreEntry>(&order)) {
    const std::lock_guard lock(group_mutex_);
    if (store_ != nullptr && store_->generation() == entry->generation) store_->Put(entry->key, entry->value);
    return;
  }
  if (const auto* refused = std::get_if<RefuseRank>(&order)) {
    Leave(absl::FailedPreconditionError(Cat("the front refuses this rank: ", refused->reason)));
    port_->Close();
    return;
  }
  if (std::holds_alternative<StopRank>(order)) {
    Leave(absl::OkStatus());
    port_->Close();
    return;
  }
  if (const auto* form = std::get_if<FormGroup>(&order); form != nullptr && !form->same_group) {
    // Before any entry of the generation comes.
    const std::lock_guard lock(group_mutex_);
    store_ = std::make_shared<Store>(form->generation, port_);
    if (const auto it = aborted_.find(form->generation); it != aborted_.end()) {
      store_->Fail(absl::UnavailableError(it->second));
    }
  }
  {
    const std::lock_guard lock(orders_mutex_);
    if (auto* prepare = std::get_if<PrepareExperts>(&order)) {
      prepare_ = std::move(*prepare);
      cancel_loading_ = true;  // of the one before
    } else {
      orders_.push_back(std::move(order));
    }
  }
  orders_changed_.notify_all();
}

// --- The loading thread ---

void RankNode::LoadExperts() {
  for (;;) {
    PrepareExperts order;
    {
      std::unique_lock lock(orders_mutex_);
      orders_changed_.wait(lock, [&] { return stop_ || prepare_.has_value(); });
      if (stop_) return;
      order = *std::exchange(prepare_, std::nullopt);
      cancel_loading_ = false;
    }
    const Status status = PrepareNow(order);
    port_->Report(RankPrepared{order.ticket, status});
  }
}

Status RankNode::PrepareNow(const PrepareExperts& order) {
  const std::lock_guard lock(loader_mutex_);
  if (loader_ == nullptr) return absl::FailedPreconditionError("nothing is loaded yet");
  if (order.experts.size() != loader_->held().size()) return InvalidError("experts of another model");
  if (order.let_go) loader_->KeepOnly(order.experts);
  const int64_t needed = loader_->BytesToLoad(order.experts);
  const int64_t free = options_.memory_bytes > 0
                           ? options_.memory_bytes - static_cast<int64_t>(packed_->bytes) - loader_->loaded_bytes()
                           : AvailableMemoryBytes();
  if (needed > free) {
    return absl::ResourceExhaustedError(
        Cat("the experts it would have to take over need ", needed >> 20, " MiB, ", free >> 20, " MiB are free"));
  }
  return loader_->Load(order.experts, &cancel_loading_);
}

// --- The executing thread ---

void RankNode::ExecuteOrders() {
  for (;;) {
    RankOrder order;
    {
      std::unique_lock lock(orders_mutex_);
      orders_changed_.wait(lock, [&] { return stop_ || !orders_.empty(); });
      if (stop_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    Status status;
    if (const auto* load = std::get_if<LoadRank>(&order)) {
      status = Load(*load);
    } else if (const auto* configure = std::get_if<ConfigureRank>(&order)) {
      status = Configure(*configure);
    } else if (const auto* form = std::get_if<FormGroup>(&order)) {
      Form(*form);
    } else if (const auto* step = std::get_if<RankStep>(&order)) {
      Step(*step);
    }
    if (!status.ok()) Fail(status);
  }
}

Status RankNode::Load(const LoadRank& order) {
  const ModelSpec& spec = model_->spec;
  if (packed_ != nullptr) return absl::FailedPreconditionError("this rank is loaded already");
  if (order.experts.size() != spec.MoeLayers().size()) return InvalidError("experts of another model");
  backend_ = order.backend;
  dtype_ = order.dtype;
  MOE_ASSIGN_OR_RETURN(const NumericFormat format, ResolveFormat(dtype_, model_->weights->expert_dtype()));
  act_ = format.act;
  {
    WorkerPool pool(threads_);
    MOE_ASSIGN_OR_RETURN(const auto packer, CreateNamedBackend(backend_, act_, &pool));
    const auto report = [this](double fraction) {
      progress_.fetch_add(1, std::memory_order_relaxed);
      port_->Report(RankProgress{fraction});
    };
    MOE_ASSIGN_OR_RETURN(
        packed_, PackModel(spec, *model_->weights, format.weights, packer.get(), &pool, report, &order.experts));
  }
  {
    const std::lock_guard lock(loader_mutex_);
    loader_pool_ = std::make_unique<WorkerPool>(1);
    MOE_ASSIGN_OR_RETURN(loader_backend_, CreateNamedBackend(backend_, act_, loader_pool_.get()));
    loader_ = std::make_unique<ExpertLoader>(spec, *model_->weights, packed_.get(), loader_backend_.get(),
                                             loader_pool_.get(), order.experts);
  }
  MOE_LOG(kInfo) << "rank " << order.slot << ": " << (packed_->bytes >> 20) << " MiB of weights loaded";
  port_->Report(RankLoaded{static_cast<int64_t>(packed_->bytes), AvailableMemoryBytes()});
  return absl::OkStatus();
}

Status RankNode::Configure(const ConfigureRank& order) {
  if (packed_ == nullptr || worker_ != nullptr) return absl::FailedPreconditionError("caches at the wrong time");
  // Until the first group there is nobody: each expert is everybody's.
  std::vector<ExpertPlacement> none;
  for (int64_t l : model_->spec.MoeLayers()) {
    none.push_back(ExpertPlacement::Linear(std::get<MoeSpec>(model_->spec.layers[l].ffn).num_experts, 1));
  }
  placements_ = std::make_shared<const std::vector<ExpertPlacement>>(std::move(none));
  auto pool = std::make_unique<WorkerPool>(threads_);
  MOE_ASSIGN_OR_RETURN(auto backend, CreateNamedBackend(backend_, act_, pool.get()));
  MOE_ASSIGN_OR_RETURN(worker_, RankWorker::Create({.spec = &model_->spec,
                                                    .weights = packed_.get(),
                                                    .placements = *placements_,
                                                    .kv_blocks = order.kv_blocks,
                                                    .state_slots = order.state_slots,
                                                    .state_snapshots = order.state_snapshots,
                                                    .rollback_slots = order.rollback_slots},
                                                   std::move(pool), std::move(backend), nullptr));
  worker_view_.store(worker_.get(), std::memory_order_release);
  return absl::OkStatus();
}

void RankNode::Form(const FormGroup& order) {
  Status status = worker_ == nullptr ? absl::FailedPreconditionError("a group before the caches") : Meet(order);
  const int suspect = BlamedRank(status);
  port_->Report(RankFormed{order.generation, std::move(status), suspect});
}

Status RankNode::Meet(const FormGroup& order) {
  // The step that was abandoned, whether or not this rank has run it to its end.
  if (order.forget_sequences) {
    worker_->ForgetSequences();
    last_step_ = 0;
  } else if (order.undo_step != 0 && order.undo_step == last_step_) {
    worker_->UndoStep();
    last_step_ = 0;
  }
  if (order.placements.size() != placements_->size()) return InvalidError("placements of another model");
  auto placements = std::make_shared<const std::vector<ExpertPlacement>>(order.placements);
  if (order.same_group) {
    if (order.generation <= generation_ || generation_ == 0) return absl::FailedPreconditionError("no group to keep");
    worker_->SetPlacements(*placements);
    placements_ = std::move(placements);
    generation_ = order.generation;
    const std::lock_guard lock(group_mutex_);
    generation_of_group_ = order.generation;
  } else {
    generation_ = 0;
    std::shared_ptr<Store> store;
    {
      const std::lock_guard lock(group_mutex_);
      communicator_ = nullptr;
      store = store_;
      if (store->generation() != order.generation) return absl::AbortedError("a later generation is being formed");
    }
    worker_->JoinGroup(nullptr, *placements_);
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, factory_(order, *store));
    {
      const std::lock_guard lock(group_mutex_);
      if (const auto it = aborted_.find(order.generation); it != aborted_.end()) {
        return absl::UnavailableError(it->second);
      }
      communicator_ = communicator.get();
      generation_of_group_ = order.generation;
    }
    worker_->JoinGroup(std::move(communicator), *placements);
    placements_ = std::move(placements);
    generation_ = order.generation;
  }
  cancel_loading_ = true;  // what a group that is no more wanted
  const std::lock_guard lock(loader_mutex_);
  ExpertLists keep;
  for (const ExpertPlacement& layer : *placements_) keep.push_back(layer.ExpertsOf(order.member));
  for (size_t l = 0; l < keep.size(); ++l) {
    const std::vector<int32_t>& held = loader_->held()[l];
    if (!std::includes(held.begin(), held.end(), keep[l].begin(), keep[l].end())) {
      return absl::InternalError(Cat("it is to compute experts of MoE layer ", l, " that it has not loaded"));
    }
  }
  loader_->KeepOnly(keep);
  return absl::OkStatus();
}

void RankNode::Step(const RankStep& order) {
  if (order.generation != generation_) return;  // of a group that is no more: nobody waits for an answer
  last_step_ = order.step;
  const std::chrono::milliseconds timeout = ExchangeTimeout(order.rows);
  worker_->SetExchangeTimeout(timeout);
  hang_limit_ = std::chrono::duration<double>(timeout).count() + kHangMargin;
  StatusOr<RankResult> result = worker_->Execute(order.plan);
  hang_limit_ = 0;
  RankStepDone done{.generation = order.generation, .step = order.step};
  if (result.ok()) {
    done.result = *std::move(result);
  } else {
    done.status = result.status();
    done.suspect = BlamedRank(done.status);
    // Nobody waits long for a rank that is out of step.
    const std::lock_guard lock(group_mutex_);
    if (communicator_ != nullptr) communicator_->Abort(std::string(done.status.message()));
  }
  port_->Report(std::move(done));
}

}  // namespace moe
