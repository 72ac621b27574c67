// What this machine can do at most, measured: the roofs that kernel_bench states its results against.
#ifndef MOE_TESTS_BENCH_KERNEL_BENCH_ROOF_H_
#define MOE_TESTS_BENCH_KERNEL_BENCH_ROOF_H_

#include "engine/device/backend.h"
#include "parallel/worker_pool.h"

namespace moe::bench {

// Seconds since some point. WallClock counts everything; CpuClock only the calling thread's processor time, which other
// programs on a shared machine do not inflate (meaningful with one thread).
using ClockFn = double (*)();
double WallClock();
double CpuClock();

// Bytes per second that all threads of the pool read from a buffer far larger than the caches, in windows as short as
// an operation: the best window and the median one (on a shared machine they differ as the kernels' times do).
struct Bandwidth {
  double best = 0;
  double median = 0;
};
Bandwidth ReadBandwidth(WorkerPool& pool, ClockFn clock);

// Floating-point operations per second of the instruction that a path's bf16 GEMM is made of, on registers alone.
double PeakFlops(CpuIsa isa, WorkerPool& pool, ClockFn clock);
// The same for float32 FMA (what attention and float32 GEMMs are made of).
double PeakFmaFlops(CpuIsa isa, WorkerPool& pool, ClockFn clock);

}  // namespace moe::bench

#endif  // MOE_TESTS_BENCH_KERNEL_BENCH_ROOF_H_
