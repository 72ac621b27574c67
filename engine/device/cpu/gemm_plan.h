// How a (grouped) GEMM is cut into tasks. Pure: depends on shapes and the thread count alone, and never changes a
// result, because a task is a part of the outputs, never of K.
#ifndef MOE_ENGINE_DEVICE_CPU_GEMM_PLAN_H_
#define MOE_ENGINE_DEVICE_CPU_GEMM_PLAN_H_

#include <cstdint>
#include <vector>

namespace moe::cpu {

struct GemmTask {
  int32_t group = 0;
  int32_t row_begin = 0;  // within the group
  int32_t row_end = 0;
  int32_t block_begin = 0;  // of 16 outputs, at a panel
  int32_t block_end = 0;
};

struct GemmPlanInput {
  int64_t blocks = 0;         // of 16 outputs, the same for all groups
  int64_t block_bytes = 0;    // weights of one block
  int64_t k = 0;              // padded
  double flops_per_ns = 100;  // one thread, this kernel
  int threads = 1;
};

// Appends the tasks of one group of `rows` rows. `total_rows` over all groups and `num_groups` set the size of a task.
// Returns the estimated time of the group in nanoseconds of one thread.
double EstimateGroupNs(const GemmPlanInput& in, int64_t rows);
void PlanGroup(const GemmPlanInput& in, int32_t group, int64_t rows, double target_ns, std::vector<GemmTask>& tasks);

// Size of a task for work of `total_ns`.
double TargetNs(double total_ns, int threads);

// Work below this runs on the calling thread: waking the others costs microseconds.
inline constexpr double kInlineNs = 4000;

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_GEMM_PLAN_H_
