#include "server/metric_writer.h"

#include <limits>

#include "parallel/base/log.h"
#include "parallel/base/status.h"

namespace moe {

double CounterMemory::Clamp(const std::string& name, const MetricLabels& labels, double value) {
  std::string key = name;
  for (const auto& [label, text] : labels) key += Cat('\0', label, '\0', text);
  double& last = last_[key];
  if (value < last) {
    if (!std::exchange(reported_, true)) {
      MOE_LOG(kWarning) << "counter " << name << " went from " << last << " to " << value;
    }
    return last;
  }
  last = value;
  return value;
}

prometheus::ClientMetric& MetricWriter::Add(const std::string& name, const std::string& help,
                                            prometheus::MetricType type, const MetricLabels& labels) {
  if (families_.empty() || families_.back().name != name) families_.push_back({name, help, type, {}});
  prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
  for (const auto& [label, text] : common_) metric.label.push_back({label, text});
  for (const auto& [label, text] : labels) metric.label.push_back({label, text});
  return metric;
}

void MetricWriter::Counter(const std::string& name, const std::string& help, double value, const MetricLabels& labels) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value = memory_->Clamp(name, labels, value);
}

void MetricWriter::Gauge(const std::string& name, const std::string& help, double value, const MetricLabels& labels) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void MetricWriter::Histogram(const std::string& name, const std::string& help, const moe::Histogram& from) {
  auto& to = Add(name, help, prometheus::MetricType::Histogram, {}).histogram;
  to.sample_count = from.count();
  to.sample_sum = from.sum();
  uint64_t sum = 0;
  for (size_t i = 0; i < from.bounds().size(); ++i) {
    sum += from.counts()[i];
    to.bucket.push_back({sum, from.bounds()[i]});
  }
  to.bucket.push_back({from.count(), std::numeric_limits<double>::infinity()});
}

}  // namespace moe
