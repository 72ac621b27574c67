#include "engine/core/loop_stats.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/base/log.h"

namespace moe {
namespace {

// vLLM's edges, so that dashboards can be compared; between tokens also 1, 2.5 and 5 ms.
constexpr double kLatencyEdges[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
constexpr double kFirstTokenEdges[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                       1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kInterTokenEdges[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                       0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
constexpr double kStepEdges[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
constexpr double kTokenEdges[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
constexpr double kStepTokenEdges[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr double kStepSequenceEdges[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

}  // namespace

void TokenRate::Add(double now, int64_t tokens) {
  const int64_t second = static_cast<int64_t>(std::floor(now));
  Bucket& bucket = buckets_[static_cast<uint64_t>(second) % buckets_.size()];
  if (bucket.second != second) bucket = {second, 0};
  bucket.tokens += tokens;
}

double TokenRate::PerSecond(double now) const {
  const int64_t second = static_cast<int64_t>(std::floor(now));
  int64_t tokens = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.second > second - kSeconds && bucket.second <= second) tokens += bucket.tokens;
  }
  return static_cast<double>(tokens) / (kSeconds - 1 + (now - static_cast<double>(second)));
}

LoopStats::LoopStats(const ModelSpec& spec, int num_ranks) {
  stats_.queue_seconds = Histogram(kLatencyEdges);
  stats_.time_to_first_token_seconds = Histogram(kFirstTokenEdges);
  stats_.inter_token_seconds = Histogram(kInterTokenEdges);
  stats_.request_seconds = Histogram(kLatencyEdges);
  stats_.prompt_tokens = Histogram(kTokenEdges);
  stats_.generated_tokens_per_request = Histogram(kTokenEdges);
  stats_.step_seconds = Histogram(kStepEdges);
  stats_.step_tokens = Histogram(kStepTokenEdges);
  stats_.step_sequences = Histogram(kStepSequenceEdges);
  for (int64_t layer : spec.MoeLayers()) {
    MoeLayerStats& moe = stats_.moe_layers.emplace_back();
    moe.layer = layer;
    moe.tokens_per_expert.resize(std::get<MoeSpec>(spec.layers[layer].ffn).num_experts);
    moe.tokens_per_rank.resize(num_ranks);
    num_experts_ += moe.tokens_per_expert.size();
  }
  stats_.ranks = num_ranks;
  stats_.rank_expert_tokens.resize(num_ranks);
}

void LoopStats::AddExperts(const StepResult& result) {
  const size_t layers = stats_.moe_layers.size();
  for (const RankResult& rank : result.ranks) {
    if (rank.expert_tokens.size() != num_experts_) continue;
    size_t at = 0;
    for (size_t l = 0; l < layers; ++l) {
      std::vector<uint64_t>& per_expert = stats_.moe_layers[l].tokens_per_expert;
      for (size_t e = 0; e < per_expert.size(); ++e, ++at) {
        int64_t rows = rank.expert_tokens[at];
        if (rows < 0) {
          if (!std::exchange(warned_, true)) {
            MOE_LOG(kWarning) << "a rank reported " << rows << " rows for an expert; negative counts are taken as 0";
          }
          rows = 0;
        }
        if (rows == 0) continue;
        per_expert[e] += static_cast<uint64_t>(rows);
        if (stats_.placements == nullptr || l >= stats_.placements->size()) continue;
        const ExpertPlacement& placement = (*stats_.placements)[l];
        const auto ranks = placement.RanksOf(static_cast<int64_t>(e));
        const auto shares = placement.SharesOf(static_cast<int64_t>(e));
        for (size_t i = 0; i < ranks.size(); ++i) {
          stats_.moe_layers[l].tokens_per_rank[ranks[i]] += static_cast<double>(rows) * shares[i];
        }
      }
    }
  }
}

void LoopStats::AddExchange(const StepResult& result) {
  const auto add = [](uint64_t* sum, int64_t n) { *sum += static_cast<uint64_t>(std::max<int64_t>(n, 0)); };
  ExchangeStats& exchange = stats_.exchange;
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    const RankResult& rank = result.ranks[r];
    add(&stats_.rank_expert_tokens[r], rank.rows_computed);
    add(&exchange.bytes_counts, rank.exchange.count_bytes);
    add(&exchange.bytes_dispatch, rank.exchange.dispatch_bytes);
    add(&exchange.bytes_combine, rank.exchange.combine_bytes);
    add(&exchange.rows_sent, rank.exchange.rows_sent);
    add(&exchange.exchanges, rank.exchange.exchanges);
    exchange.seconds_counts += std::max(0.0, rank.exchange.counts_seconds);
    exchange.seconds_dispatch += std::max(0.0, rank.exchange.dispatch_seconds);
    exchange.seconds_combine += std::max(0.0, rank.exchange.combine_seconds);
  }
}

void LoopStats::AddStep(const StepCounts& counts, const StepResult& result) {
  std::lock_guard lock(mutex_);
  ++stats_.steps;
  stats_.prompt_tokens_computed += static_cast<uint64_t>(counts.prompt_tokens);
  stats_.generated_tokens += static_cast<uint64_t>(counts.generated);
  stats_.step_seconds.Observe(counts.seconds);
  stats_.step_tokens.Observe(static_cast<double>(counts.tokens));
  stats_.step_sequences.Observe(static_cast<double>(counts.sequences));
  for (double s : counts.inter_token_seconds) stats_.inter_token_seconds.Observe(s);
  for (double s : counts.first_token_seconds) stats_.time_to_first_token_seconds.Observe(s);
  rate_.Add(counts.now, counts.generated);
  AddExperts(result);
  AddExchange(result);
}

void LoopStats::AddStarted(double queue_seconds) {
  std::lock_guard lock(mutex_);
  stats_.queue_seconds.Observe(queue_seconds);
}

void LoopStats::AddCachedPromptTokens(int64_t tokens) {
  std::lock_guard lock(mutex_);
  stats_.prompt_tokens_cached += static_cast<uint64_t>(tokens);
}

void LoopStats::AddFinish(FinishReason reason) {
  std::lock_guard lock(mutex_);
  switch (reason) {
    case FinishReason::kEos:
      ++stats_.finish_eos;
      break;
    case FinishReason::kStop:
      ++stats_.finish_stop;
      break;
    case FinishReason::kLength:
      ++stats_.finish_length;
      break;
    case FinishReason::kCancelled:
      ++stats_.finish_cancelled;
      break;
    case FinishReason::kNone:
      break;
  }
}

void LoopStats::AddRequestOk(double seconds, int64_t prompt_tokens, int64_t generated_tokens) {
  std::lock_guard lock(mutex_);
  ++stats_.requests_ok;
  stats_.request_seconds.Observe(seconds);
  stats_.prompt_tokens.Observe(static_cast<double>(prompt_tokens));
  stats_.generated_tokens_per_request.Observe(static_cast<double>(generated_tokens));
}

void LoopStats::AddRequestCancelled() {
  std::lock_guard lock(mutex_);
  ++stats_.requests_cancelled;
}

void LoopStats::AddRequestFailed() {
  std::lock_guard lock(mutex_);
  ++stats_.requests_failed;
}

void LoopStats::AddRejectedQueueFull() {
  std::lock_guard lock(mutex_);
  ++stats_.requests_rejected_queue_full;
}

void LoopStats::Update(const Scheduler& scheduler) {
  int64_t total = 0, used = 0, cached = 0;
  for (int r = 0; r < scheduler.options().num_ranks; ++r) {
    const RankBlocks& blocks = scheduler.rank_blocks(r);
    total += blocks.total();
    used += blocks.used();
    cached += blocks.cached();
  }
  std::lock_guard lock(mutex_);
  stats_.running = scheduler.num_running();
  stats_.waiting = scheduler.num_waiting();
  stats_.kv_blocks_total = total;
  stats_.kv_blocks_used = used;
  stats_.kv_blocks_cached = cached;
  stats_.preemptions = scheduler.preemptions();
  stats_.replays = scheduler.replays();
  stats_.prefix_queries = scheduler.prefix_queries();
  stats_.prefix_hits = scheduler.prefix_hits();
  stats_.guesses_proposed = scheduler.guesses_proposed();
  stats_.guesses_accepted = scheduler.guesses_accepted();
}

void LoopStats::SetPlacements(std::shared_ptr<const std::vector<ExpertPlacement>> placements) {
  std::lock_guard lock(mutex_);
  stats_.placements = std::move(placements);
}

std::vector<std::vector<uint64_t>> LoopStats::ExpertTokens() const {
  std::lock_guard lock(mutex_);
  std::vector<std::vector<uint64_t>> tokens;
  for (const MoeLayerStats& layer : stats_.moe_layers) tokens.push_back(layer.tokens_per_expert);
  return tokens;
}

EngineStats LoopStats::Copy(double now) const {
  std::lock_guard lock(mutex_);
  EngineStats copy = stats_;
  copy.generated_tokens_per_second = rate_.PerSecond(now);
  return copy;
}

}  // namespace moe
