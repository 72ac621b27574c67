// The process_* metrics of Prometheus' convention, read from /proc.
#ifndef MOE_SERVER_PROCESS_METRICS_H_
#define MOE_SERVER_PROCESS_METRICS_H_

namespace moe {

class MetricWriter;

void WriteProcessMetrics(MetricWriter* out);

}  // namespace moe

#endif  // MOE_SERVER_PROCESS_METRICS_H_
