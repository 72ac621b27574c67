#include "engine/device/cpu/gemm_plan.h"

#include <algorithm>

#include "engine/device/cpu/kernels.h"

namespace moe::cpu {
namespace {

// What one thread streams from memory; only ratios matter here.
constexpr double kBytesPerNs = 12;
// Tasks per thread: enough that the last one to finish costs a few percent, few enough that a task is a long stream.
constexpr double kTasksPerThread = 8;
constexpr double kMinTaskNs = 3000;
// Rows are cut at multiples of this, a multiple of every kernel's tile.
constexpr int64_t kRowUnit = 96;

double PanelNs(const GemmPlanInput& in, int64_t rows) {
  const double bytes = static_cast<double>(in.block_bytes * kPanelBlocks) / kBytesPerNs;
  const double flops = 2.0 * static_cast<double>(rows * in.k * kPanelBlocks * kBlockN) / in.flops_per_ns;
  return std::max(bytes, flops);
}

}  // namespace

double EstimateGroupNs(const GemmPlanInput& in, int64_t rows) {
  const int64_t panels = (in.blocks + kPanelBlocks - 1) / kPanelBlocks;
  return PanelNs(in, rows) * static_cast<double>(panels);
}

double TargetNs(double total_ns, int threads) {
  return std::max(kMinTaskNs, total_ns / (threads * kTasksPerThread));
}

void PlanGroup(const GemmPlanInput& in, int32_t group, int64_t rows, double target_ns, std::vector<GemmTask>& tasks) {
  if (rows == 0 || in.blocks == 0) return;
  const int64_t panels = (in.blocks + kPanelBlocks - 1) / kPanelBlocks;
  // Few panels and many rows (a router, a small expert): rows are cut too.
  int64_t row_parts = 1;
  const double panel_ns = PanelNs(in, rows);
  if (panel_ns > target_ns) {
    const int64_t wanted = static_cast<int64_t>(panel_ns / target_ns) + 1;
    row_parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, rows / kRowUnit));
  }
  const int64_t rows_per_part = ((rows + row_parts - 1) / row_parts + kRowUnit - 1) / kRowUnit * kRowUnit;
  const double part_ns = PanelNs(in, std::min(rows, rows_per_part));
  const int64_t parts = std::max<int64_t>(1, static_cast<int64_t>(part_ns * static_cast<double>(panels) / target_ns));
  const int64_t panels_per_task = (panels + std::min(parts, panels) - 1) / std::min(parts, panels);
  for (int64_t p = 0; p < panels; p += panels_per_task) {
    for (int64_t r = 0; r < rows; r += rows_per_part) {
      GemmTask t;
      t.group = group;
      t.row_begin = static_cast<int32_t>(r);
      t.row_end = static_cast<int32_t>(std::min(rows, r + rows_per_part));
      t.block_begin = static_cast<int32_t>(p * kPanelBlocks);
      t.block_end = static_cast<int32_t>(std::min(in.blocks, (p + panels_per_task) * kPanelBlocks));
      tasks.push_back(t);
    }
  }
}

}  // namespace moe::cpu
