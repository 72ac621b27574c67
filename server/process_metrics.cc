#include "server/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "server/metric_writer.h"

namespace moe {
namespace {

double CountOpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): its own stream
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(directory);
  return count - 1;  // without the one that reads
}

// Seconds since the epoch at which the machine started.
double BootTime() {
  std::ifstream stat("/proc/stat");
  std::string line;
  while (std::getline(stat, line)) {
    if (line.rfind("btime ", 0) == 0) return std::stod(line.substr(6));
  }
  return 0;
}

}  // namespace

void WriteProcessMetrics(MetricWriter* out) {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(text.substr(name_end + 2));
  // Fields 3 … 24 of proc(5): state … rss.
  std::string state;
  fields >> state;
  double values[22] = {};
  for (int i = 0; i < 21; ++i) fields >> values[i];
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  static const double boot_time = BootTime();
  // values[i] is field i + 4.
  out->Counter("process_cpu_seconds_total", "Processor time of this process, user and system.",
               (values[10] + values[11]) / ticks);
  out->Gauge("process_threads", "Threads of this process.", values[16]);
  out->Gauge("process_start_time_seconds", "When this process started, in seconds since the epoch.",
             boot_time + values[18] / ticks);
  out->Gauge("process_virtual_memory_bytes", "Address space of this process.", values[19]);
  out->Gauge("process_resident_memory_bytes", "Memory of this process that is in RAM.", values[20] * page);
  out->Gauge("process_open_fds", "Open file descriptors.", CountOpenFiles());
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out->Gauge("process_max_fds", "Limit of open file descriptors.", static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace moe
