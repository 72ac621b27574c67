#include "engine/core/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/core/build_name.h"
#include "engine/core/cluster_link.h"
#include "engine/core/engine_loop.h"
#include "engine/core/engine_setup.h"
#include "engine/core/local_ranks.h"
#include "engine/core/memory_plan.h"
#include "engine/core/rank_worker.h"
#include "engine/tensor/lazy_memory.h"
#include "loaders/model_loader.h"

namespace moe {
namespace {

// Ranks are threads here: one that does not come to an exchange is computing, not lost. The bound only keeps a bug from
// hanging the process for ever.
constexpr std::chrono::minutes kExchangeTimeout{10};

class EngineImpl : public Engine {
 public:
  EngineImpl(std::unique_ptr<LoadedModel> model, const EngineOptions& options, std::unique_ptr<RankTransport> transport)
      : model_(std::move(model)), options_(options), transport_(std::move(transport)) {}
  ~EngineImpl() override { loop_.reset(); }  // before what it uses

  Status Start(const ProgressFn& progress);

  const LoadedModel& model() const override { return *model_; }
  const EngineInfo& info() const override { return info_; }
  StatusOr<uint64_t> Submit(Request request, std::shared_ptr<ResponseSink> sink) override {
    return loop_->Submit(std::move(request), std::move(sink));
  }
  void Cancel(uint64_t handle) override { loop_->Cancel(handle); }
  void Abort(uint64_t handle) override { loop_->Abort(handle); }
  void StopChoice(uint64_t handle, uint32_t choice) override { loop_->StopChoice(handle, choice); }
  void StopAccepting() override { loop_->StopAccepting(); }
  int64_t Unfinished() const override { return loop_->Unfinished(); }
  void AbortAll() override { loop_->AbortAll(); }
  int64_t FlushPrefixCache() override { return loop_->FlushPrefixCache(); }
  void Rebalance(int64_t redundant_experts, std::function<void(const Status&)> done) override {
    loop_->Rebalance(redundant_experts, std::move(done));
  }
  EngineStats Stats() const override { return loop_->Stats(); }
  Status Health(double limit_seconds) const override { return loop_->Health(limit_seconds); }
  bool WaitsForRanks() const override { return loop_->WaitsForRanks(); }

 private:
  int64_t FreeMemoryBytes() const;
  Status OpenPackedCache(const NumericFormat& format, const Backend& packer);
  // The two ways to have ranks; weights and caches are there when they return.
  Status StartThreads(const NumericFormat& format, const ProgressFn& progress, MemoryPlan* plan);
  Status StartProcesses(const NumericFormat& format, const ProgressFn& progress, MemoryPlan* plan);
  void Describe(const MemoryPlan& plan);
  Status CreateRanks(DType act, const MemoryPlan& plan, int threads_per_rank);
  Status WarmUp();
  void StartLoop(const MemoryPlan& plan);

  std::unique_ptr<LoadedModel> model_;
  EngineOptions options_;
  EngineInfo info_;
  std::unique_ptr<PackedCache> packed_cache_;  // null: none; outlives packed_
  std::unique_ptr<PackedModel> packed_;
  LoopInbox inbox_;
  std::unique_ptr<RankTransport> transport_;  // null: ranks are threads
  std::unique_ptr<RankLink> ranks_;
  std::unique_ptr<EngineLoop> loop_;
};

Status EngineImpl::Start(const ProgressFn& progress) {
  const auto start = std::chrono::steady_clock::now();
  const int ranks = options_.expert_parallel_size;
  if (ranks < 1) return InvalidError("expert-parallel-size: ", ranks, " is not at least 1");
  if (options_.max_num_seqs < 1) return InvalidError("max-num-seqs: ", options_.max_num_seqs, " is not at least 1");
  if (options_.max_num_batched_tokens < 1) {
    return InvalidError("max-num-batched-tokens: ", options_.max_num_batched_tokens, " is not at least 1");
  }
  if (options_.speculative != "off" && options_.speculative != "ngram") {
    return InvalidError("speculative: ", options_.speculative, " is neither off nor ngram");
  }
  if (options_.speculative != "off" && options_.speculative_ngram_min > options_.speculative_ngram_max) {
    return InvalidError("speculative-ngram-min: ", options_.speculative_ngram_min, " is above speculative-ngram-max, ",
                        options_.speculative_ngram_max);
  }
  MOE_ASSIGN_OR_RETURN(const NumericFormat format, ResolveFormat(options_.dtype, model_->weights->expert_dtype()));
  info_.notes = format.notes;
  info_.threads = options_.threads > 0 ? options_.threads : UsableCores();
  info_.ranks = ranks;
  info_.weight_dtype = DTypeName(format.weights);
  info_.act_dtype = DTypeName(format.act);
  MemoryPlan plan;
  MOE_RETURN_IF_ERROR(transport_ != nullptr ? StartProcesses(format, progress, &plan)
                                            : StartThreads(format, progress, &plan));
  MOE_RETURN_IF_ERROR(WarmUp());
  StartLoop(plan);
  info_.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

Status EngineImpl::StartThreads(const NumericFormat& format, const ProgressFn& progress, MemoryPlan* plan) {
  const ModelSpec& spec = model_->spec;
  {
    WorkerPool pool(info_.threads);
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> packer, CreateBackend(options_, format.act, &pool));
    info_.backend = packer->name();
    const auto report = [&](double fraction) {
      if (progress) progress({"packing weights", fraction});
    };
    MOE_RETURN_IF_ERROR(OpenPackedCache(format, *packer));
    packer->UsePackedCache(packed_cache_.get());
    MOE_ASSIGN_OR_RETURN(packed_, PackModel(spec, *model_->weights, format.weights, packer.get(), &pool, report));
    if (packed_cache_ != nullptr) packed_cache_->Keep();
  }
  info_.weight_bytes = static_cast<int64_t>(packed_->bytes);
  MOE_ASSIGN_OR_RETURN(*plan, PlanMemory(spec, options_, format.act, FreeMemoryBytes()));
  Describe(*plan);
  if (progress) progress({"warming up", 1.0});
  return CreateRanks(format.act, *plan, std::max(1, info_.threads / options_.expert_parallel_size));
}

Status EngineImpl::StartProcesses(const NumericFormat& format, const ProgressFn& progress, MemoryPlan* plan) {
  const ModelSpec& spec = model_->spec;
  {
    WorkerPool pool(1);
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateBackend(options_, format.act, &pool));
    info_.backend = backend->name();
  }
  ClusterOptions options;
  options.terms = {
      .build = BuildName(), .checkpoint = model_->fingerprint, .backend = info_.backend, .dtype = options_.dtype};
  options.num_slots = options_.expert_parallel_size;
  MOE_ASSIGN_OR_RETURN(options.transport, ParseTransport(options_.rank_transport));
  options.sequences_survive = !DraftRollback::Needed(spec);
  options.recovery_timeout = options_.rank_recovery_timeout;
  options.on_event = [this] { inbox_.Push({}); };
  auto cluster = std::make_unique<ClusterLink>(spec, options, transport_.get());
  ClusterLink* link = cluster.get();
  ranks_ = std::move(cluster);
  MOE_ASSIGN_OR_RETURN(const ClusterLink::Memory memory,
                       link->AwaitRanks([&](const std::string& stage, double fraction) {
                         if (progress) progress({stage, fraction});
                       }));
  info_.weight_bytes = memory.weight_bytes;
  MOE_ASSIGN_OR_RETURN(*plan, PlanMemory(spec, options_, format.act, memory.available_bytes));
  Describe(*plan);
  if (progress) progress({"warming up", 1.0});
  return link->Begin({.kv_blocks = plan->kv_blocks_per_rank,
                      .state_slots = spec.HasRecurrentState() ? plan->state_slots_per_rank : 0,
                      .state_snapshots = plan->snapshots_per_rank,
                      .rollback_slots = plan->rollbacks_per_rank});
}

void EngineImpl::Describe(const MemoryPlan& plan) {
  const int64_t ranks = options_.expert_parallel_size;
  info_.notes.insert(info_.notes.end(), plan.notes.begin(), plan.notes.end());
  info_.max_model_len = plan.max_model_len;
  info_.kv_blocks = plan.kv_blocks_per_rank * ranks;
  info_.kv_block_tokens = kKvBlockTokens;
  info_.kv_bytes = plan.kv_bytes;
  info_.state_slots = model_->spec.HasRecurrentState() ? plan.state_slots_per_rank * ranks : 0;
}

// The weights of a PackedCache are file pages, which count as available; they are not.
int64_t EngineImpl::FreeMemoryBytes() const {
  const int64_t mapped = packed_cache_ != nullptr ? info_.weight_bytes : 0;
  return std::max<int64_t>(0, AvailableMemoryBytes() - mapped);
}

Status EngineImpl::OpenPackedCache(const NumericFormat& format, const Backend& packer) {
  if (options_.weight_cache.empty() || packer.PackedLayout().empty()) return absl::OkStatus();
  const std::string checkpoint = CheckpointIdentity(model_->path);
  if (checkpoint.empty()) return absl::OkStatus();  // the embedded demo
  MOE_ASSIGN_OR_RETURN(
      packed_cache_,
      PackedCache::Open(options_.weight_cache, Cat("moe ", MOE_VERSION, ", ", packer.PackedLayout(), ", ",
                                                   DTypeName(format.weights), "\n", model_->path, "\n", checkpoint)));
  info_.notes.push_back(
      Cat(packed_cache_->hit() ? "packed weights come from " : "packed weights go to ", packed_cache_->path()));
  return absl::OkStatus();
}

Status EngineImpl::CreateRanks(DType act, const MemoryPlan& plan, int threads_per_rank) {
  const ModelSpec& spec = model_->spec;
  const int ranks = options_.expert_parallel_size;
  std::vector<ExpertPlacement> linear;
  for (int64_t l : spec.MoeLayers()) {
    linear.push_back(ExpertPlacement::Linear(std::get<MoeSpec>(spec.layers[l].ffn).num_experts, ranks));
  }
  const auto placements = std::make_shared<const std::vector<ExpertPlacement>>(std::move(linear));
  auto group = CreateInProcessGroup(ranks, kExchangeTimeout);
  std::vector<std::unique_ptr<RankWorker>> workers;
  for (int r = 0; r < ranks; ++r) {
    auto pool = std::make_unique<WorkerPool>(threads_per_rank);
    MOE_ASSIGN_OR_RETURN(auto backend, CreateBackend(options_, act, pool.get()));
    MOE_ASSIGN_OR_RETURN(auto worker,
                         RankWorker::Create({.spec = &spec,
                                             .weights = packed_.get(),
                                             .placements = *placements,
                                             .kv_blocks = plan.kv_blocks_per_rank,
                                             .state_slots = spec.HasRecurrentState() ? plan.state_slots_per_rank : 0,
                                             .state_snapshots = plan.snapshots_per_rank,
                                             .rollback_slots = plan.rollbacks_per_rank},
                                            std::move(pool), std::move(backend), std::move(group[r])));
    workers.push_back(std::move(worker));
  }
  ranks_ = CreateLocalRanks(std::move(workers), placements);
  return absl::OkStatus();
}

// One step through everything on every rank, so that the first request meets warm code and a broken kernel shows before
// the server says SERVING. Uses blocks and slots that the scheduler has not given out yet.
Status EngineImpl::WarmUp() {
  constexpr SequenceId kWarmUpId = std::numeric_limits<SequenceId>::max();
  StepPlan plan;
  for (int r = 0; r < ranks_->num_ranks(); ++r) {
    SequenceInit init;
    init.id = kWarmUpId;
    init.tokens.assign(std::min<int64_t>(4, info_.max_model_len), 0);
    init.prompt_len = static_cast<int64_t>(init.tokens.size());
    init.sampling.temperature = 0;
    init.state_slot = model_->spec.HasRecurrentState() ? 0 : -1;
    RankPlan& rank = plan.ranks.emplace_back();
    rank.slices.push_back({.id = kWarmUpId, .count = init.prompt_len, .new_blocks = {0}, .sample = true});
    rank.admit.push_back(std::move(init));
  }
  Status status = ranks_->Step(plan).status();
  for (RankPlan& rank : plan.ranks) rank = {.drop = {kWarmUpId}};
  if (status.ok()) status = ranks_->Step(plan).status();
  // A rank process that was lost right now: the loop will see to it.
  return transport_ != nullptr && absl::IsUnavailable(status) ? absl::OkStatus() : status;
}

void EngineImpl::StartLoop(const MemoryPlan& plan) {
  const ModelSpec& spec = model_->spec;
  const int ranks = options_.expert_parallel_size;
  EngineLoopOptions loop;
  loop.max_queue = options_.max_queue;
  loop.scheduler.num_ranks = ranks;
  loop.scheduler.blocks_per_rank = plan.kv_blocks_per_rank;
  loop.scheduler.max_model_len = plan.max_model_len;
  loop.scheduler.max_num_seqs = std::min(options_.max_num_seqs, plan.state_slots_per_rank * ranks);
  loop.scheduler.max_num_batched_tokens = options_.max_num_batched_tokens;
  loop.scheduler.long_context_border = spec.LongContextBorder();
  loop.scheduler.itl_slowdown = options_.itl_slowdown;
  loop.scheduler.prefix_cache = options_.prefix_cache;
  loop.scheduler.state_slots_per_rank = spec.HasRecurrentState() ? plan.state_slots_per_rank : 0;
  loop.scheduler.snapshot_slots_per_rank = plan.snapshots_per_rank;
  if (options_.speculative != "off") {
    SpeculationOptions& speculation = loop.scheduler.speculation;
    speculation.tokens = options_.speculative_tokens;
    speculation.ngram_min = options_.speculative_ngram_min;
    speculation.ngram_max = options_.speculative_ngram_max;
    speculation.rolls_back = DraftRollback::Needed(spec);
    // Tails alone cost next to nothing to save.
    speculation.slices_per_rank = spec.HasRecurrentState() ? plan.rollbacks_per_rank : options_.max_num_seqs;
    speculation.cost = StepCost(spec);
  }
  loop.rebalance_interval = options_.rebalance_interval;
  loop.redundant_experts = options_.redundant_experts;
  loop_ = std::make_unique<EngineLoop>(spec, loop, inbox_, *ranks_, EngineLoop::SteadyClock());
  loop_->Start();
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<LoadedModel> model, const EngineOptions& options,
                                                 const ProgressFn& progress, std::unique_ptr<RankTransport> transport) {
  auto engine = std::make_unique<EngineImpl>(std::move(model), options, std::move(transport));
  MOE_RETURN_IF_ERROR(engine->Start(progress));
  return engine;
}

}  // namespace moe
