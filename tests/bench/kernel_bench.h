// kernel_bench's cases: operations at model shapes, with the bytes they must read and the arithmetic they must do.
#ifndef MOE_TESTS_BENCH_KERNEL_BENCH_H_
#define MOE_TESTS_BENCH_KERNEL_BENCH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/backend.h"

namespace moe::bench {

struct Case {
  std::string name;
  double bytes = 0;  // read from memory at least: weights, cache, states (written ones twice)
  double flops = 0;
  bool fma = false;           // its roof is float32 FMA, not the path's bf16 instruction
  std::function<void()> run;  // one operation; successive calls use other weights, so that none are in cache
};

// `filter`: only names that contain it.
std::vector<Case> MakeCases(std::shared_ptr<Backend> backend, const std::string& filter);
void AddRecurrences(const std::shared_ptr<Backend>& backend, const std::string& filter, std::vector<Case>& cases);

std::vector<float> RandomFloats(int64_t n, uint32_t seed);  // in [-1, 1]

}  // namespace moe::bench

#endif  // MOE_TESTS_BENCH_KERNEL_BENCH_H_
