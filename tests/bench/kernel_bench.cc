// kernel_bench: the cpu backend's operations at model shapes as fractions of this machine's roofs, which are measured
// in the same run: memory read bandwidth and the peak rate of each path's instruction. A roof fraction is max(bytes /
// bandwidth, flops / peak) / time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/kernel_bench.h"
#include "tests/bench/kernel_bench_roof.h"

namespace moe::bench {
namespace {

constexpr char kHelp[] =
    "kernel_bench [--isa NAME] [--threads N] [--filter TEXT] [--seconds S] [--clock wall|cpu] [--json FILE]\n"
    "  Times gemm, moe, attention and the recurrent mixers on every instruction-set path of this machine (or --isa) "
    "and\n"
    "  states them as fractions of the measured roofs. Times are the best and the median of runs that fill --seconds\n"
    "  (0.5) per case.\n";

struct Options {
  std::string isa;
  std::string filter;
  std::string json;
  int threads = UsableCores();
  double seconds = 0.5;
  ClockFn clock = WallClock;
};

struct Timing {
  double best = 0;
  double median = 0;
};

// Runs until `seconds` have passed, at least five times, after one warm-up.
Timing Time(const Case& c, double seconds, ClockFn clock) {
  c.run();
  std::vector<double> times;
  const double start = clock();
  while (times.size() < 5 || clock() - start < seconds) {
    const double begin = clock();
    c.run();
    times.push_back(clock() - begin);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int Main(const Options& options) {
  WorkerPool pool(options.threads);
  WorkerPool one(1);
  const Bandwidth bandwidth = ReadBandwidth(pool, options.clock);
  const Bandwidth single = ReadBandwidth(one, options.clock);
  nlohmann::json report;
  report["processor"] = ProcessorName();
  report["threads"] = options.threads;
  report["clock"] = options.clock == WallClock ? "wall" : "cpu";
  report["read_gb_s"] = bandwidth.best / 1e9;
  report["read_gb_s_median"] = bandwidth.median / 1e9;
  report["read_gb_s_one_thread"] = single.best / 1e9;
  std::printf("%s, %d threads; memory read %.1f GB/s, median %.1f (one thread %.1f, %.1f)\n", ProcessorName().c_str(),
              options.threads, bandwidth.best / 1e9, bandwidth.median / 1e9, single.best / 1e9, single.median / 1e9);
  for (CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (!options.isa.empty() && options.isa != CpuIsaName(isa)) continue;
    if (!CpuIsaAvailable(isa)) {
      std::printf("\n%s: not on this processor\n", CpuIsaName(isa));
      continue;
    }
    auto backend = CreateCpuBackend(CpuIsaName(isa), DType::kBF16, &pool);
    if (!backend.ok()) return 1;
    const double peak = PeakFlops(isa, pool, options.clock);
    const double fma = PeakFmaFlops(isa, pool, options.clock);
    std::printf("\n%s: peak %.0f GFLOP/s (float32 FMA %.0f; one thread %.0f, %.0f)\n", CpuIsaName(isa), peak / 1e9,
                fma / 1e9, PeakFlops(isa, one, options.clock) / 1e9, PeakFmaFlops(isa, one, options.clock) / 1e9);
    std::printf("  %-32s %11s %11s %9s %9s %7s %7s\n", "", "best µs", "median µs", "GB/s", "GFLOP/s", "roof", "median");
    report["paths"][CpuIsaName(isa)]["peak_gflops"] = peak / 1e9;
    report["paths"][CpuIsaName(isa)]["fma_gflops"] = fma / 1e9;
    for (const Case& c : MakeCases(std::move(*backend), options.filter)) {
      const Timing t = Time(c, options.seconds, options.clock);
      const double memory = c.bytes / bandwidth.best;
      const double compute = c.flops / (c.fma ? fma : peak);
      const double roof = std::max(memory, compute);
      const double median_roof = std::max(c.bytes / bandwidth.median, compute);
      std::printf("  %-32s %11.1f %11.1f %9.1f %9.1f %5.0f %% %5.0f %%  %s\n", c.name.c_str(), t.best * 1e6,
                  t.median * 1e6, c.bytes / t.best / 1e9, c.flops / t.best / 1e9, 100 * roof / t.best,
                  100 * median_roof / t.median, memory > compute ? "memory" : "compute");
      std::fflush(stdout);
      report["paths"][CpuIsaName(isa)]["cases"].push_back({{"name", c.name},
                                                           {"best_us", t.best * 1e6},
                                                           {"median_us", t.median * 1e6},
                                                           {"bytes", c.bytes},
                                                           {"flops", c.flops},
                                                           {"roof", memory > compute ? "memory" : "compute"},
                                                           {"roof_fraction", roof / t.best},
                                                           {"roof_fraction_median", median_roof / t.median}});
    }
  }
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace moe::bench

int main(int argc, char** argv) {
  moe::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (flag == "--help" || value == nullptr) {
      std::fputs(moe::bench::kHelp, flag == "--help" ? stdout : stderr);
      return flag == "--help" ? 0 : 2;
    }
    ++i;
    if (flag == "--isa") {
      options.isa = value;
    } else if (flag == "--threads") {
      options.threads = std::max(1, std::atoi(value));
    } else if (flag == "--filter") {
      options.filter = value;
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value);
    } else if (flag == "--clock") {
      if (std::strcmp(value, "cpu") == 0) {
        options.clock = moe::bench::CpuClock;
        options.threads = 1;
      }
    } else if (flag == "--json") {
      options.json = value;
    } else {
      std::fputs(moe::bench::kHelp, stderr);
      return 2;
    }
  }
  return moe::bench::Main(options);
}
