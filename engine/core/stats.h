// Counters and histograms of the engine, written by the engine loop and copied out on demand. Counters only grow.
#ifndef MOE_ENGINE_CORE_STATS_H_
#define MOE_ENGINE_CORE_STATS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/placement.h"

namespace moe {

// A cumulative histogram with fixed upper bounds; the last bucket is +Inf.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void Observe(double value) {
    size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    ++counts_[i];
    ++count_;
    sum_ += value;
  }
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // per bucket, not cumulative
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

struct MoeLayerStats {
  int64_t layer = 0;                        // index in the model
  std::vector<uint64_t> tokens_per_expert;  // routed rows since the start
  std::vector<double> tokens_per_rank;      // of them, what each rank computed (replicas: their shares)
};

// The group of ranks.
struct RankGroupStats {
  uint64_t generation = 0;
  int64_t ranks_alive = 1;
  uint64_t recoveries = 0;  // groups formed because a rank was lost
  double last_recovery_seconds = 0;
  Histogram recovery_seconds;  // from the sign of the loss to the new group
  uint64_t rebalances = 0;
  uint64_t experts_copied = 0;  // loaded by ranks that did not hold them
};

// What ranks exchange, over all of them.
struct ExchangeStats {
  uint64_t bytes_counts = 0, bytes_dispatch = 0, bytes_combine = 0;
  uint64_t rows_sent = 0;
  uint64_t exchanges = 0;
  // Waiting and copying, summed over the ranks.
  double seconds_counts = 0, seconds_dispatch = 0, seconds_combine = 0;
};

struct EngineStats {
  // Gauges.
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;              // by sequences (cached but unused prefixes are free)
  int64_t kv_blocks_cached = 0;            // held only by the prefix cache
  double generated_tokens_per_second = 0;  // over the last ten seconds

  // Counters of requests by how they ended, and of choices by finish reason.
  uint64_t requests_ok = 0;
  uint64_t requests_cancelled = 0;
  uint64_t requests_failed = 0;
  uint64_t requests_rejected_queue_full = 0;
  uint64_t finish_eos = 0;
  uint64_t finish_stop = 0;
  uint64_t finish_length = 0;
  uint64_t finish_cancelled = 0;

  uint64_t prompt_tokens_computed = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t replays = 0;  // sequences computed anew because their rank was lost
  uint64_t steps = 0;
  uint64_t prefix_queries = 0;  // prompt blocks looked up
  uint64_t prefix_hits = 0;     // of them found
  // Speculative decoding: guesses that steps computed, and those of them that came true.
  uint64_t guesses_proposed = 0;
  uint64_t guesses_accepted = 0;

  Histogram queue_seconds;
  Histogram time_to_first_token_seconds;
  Histogram inter_token_seconds;
  Histogram request_seconds;
  Histogram prompt_tokens;
  Histogram generated_tokens_per_request;
  Histogram step_seconds;
  Histogram step_tokens;
  Histogram step_sequences;

  std::vector<MoeLayerStats> moe_layers;
  int ranks = 1;
  std::vector<uint64_t> rank_expert_tokens;                        // [ranks], rows computed by each rank
  std::shared_ptr<const std::vector<ExpertPlacement>> placements;  // [moe_layers], in force
  RankGroupStats group;
  ExchangeStats exchange;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_STATS_H_
