// MetricWriter: collects metric families for one scrape, with the labels all of them carry. Its counters never go down:
// a smaller value than the last scrape's is replaced by that one and reported once.
#ifndef MOE_SERVER_METRIC_WRITER_H_
#define MOE_SERVER_METRIC_WRITER_H_

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/stats.h"

namespace moe {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// What counters showed at the last scrape; outlives the writers, used by one at a time.
class CounterMemory {
 public:
  double Clamp(const std::string& name, const MetricLabels& labels, double value);

 private:
  std::map<std::string, double> last_;
  bool reported_ = false;
};

class MetricWriter {
 public:
  MetricWriter(MetricLabels common, CounterMemory* memory) : common_(std::move(common)), memory_(memory) {}

  // A name's series come one after the other; the help text of the first counts.
  void Counter(const std::string& name, const std::string& help, double value, const MetricLabels& labels = {});
  void Gauge(const std::string& name, const std::string& help, double value, const MetricLabels& labels = {});
  void Histogram(const std::string& name, const std::string& help, const moe::Histogram& histogram);

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help, prometheus::MetricType type,
                                const MetricLabels& labels);

  const MetricLabels common_;
  CounterMemory* const memory_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace moe

#endif  // MOE_SERVER_METRIC_WRITER_H_
