// Metrics: everything /metrics shows, read on each scrape from the engine's Stats and the server's counters. Nothing is
// counted here, so a scrape never touches the request path. All labels have bounded values.
#ifndef MOE_SERVER_METRICS_H_
#define MOE_SERVER_METRICS_H_

#include <prometheus/collectable.h>

#include <mutex>
#include <string>
#include <vector>

#include "server/metric_writer.h"

namespace moe {

class ServerCore;

class Metrics final : public prometheus::Collectable {
 public:
  // `core` outlives this. `per_expert`: moe_expert_tokens_total has a series an expert, not only a rank.
  Metrics(const ServerCore* core, bool per_expert) : core_(core), per_expert_(per_expert) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

  // The text exposition format.
  std::string Text() const;

 private:
  const ServerCore* const core_;
  const bool per_expert_;
  mutable std::mutex mutex_;
  mutable CounterMemory memory_;  // guarded by mutex_
};

}  // namespace moe

#endif  // MOE_SERVER_METRICS_H_
