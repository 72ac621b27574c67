#include "tests/bench/kernel_bench_roof.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace moe::bench {
namespace {

// One ascending stream with prefetches into L2 far ahead: the fastest way to read that we know of.
__attribute__((target("avx2"))) void ReadPart(const char* p, int64_t bytes) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int64_t j = 0; j < 256; j += 32) {
      if (j % 64 == 0) _mm_prefetch(p + i + j + 16384, _MM_HINT_T1);
      sum = _mm256_xor_si256(sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + j)));
    }
  }
  asm volatile("" ::"x"(sum));
}

// Independent chains on named registers (all zero), so that the compiler has no say in it: 12 hide four cycles of
// latency at two a cycle, and the six of vdpbf16ps at one.
#define MOE_FOUR(op, x, a, b, c, d)                                                                       \
  op " %%" x "15, %%" x "15, %%" x #a "\n" op " %%" x "15, %%" x "15, %%" x #b "\n" op " %%" x "15, %%" x \
     "15, %%" x #c "\n" op " %%" x "15, %%" x "15, %%" x #d "\n"
#define MOE_TWELVE(op, x) MOE_FOUR(op, x, 0, 1, 2, 3) MOE_FOUR(op, x, 4, 5, 6, 7) MOE_FOUR(op, x, 8, 9, 10, 11)

double FmaAvx2(int64_t rounds) {
  asm volatile("vzeroall" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15");
  for (int64_t r = 0; r < rounds; ++r) asm volatile(MOE_TWELVE("vfmadd231ps", "ymm")::: "memory");
  asm volatile("vzeroupper" ::: "memory");
  return static_cast<double>(rounds) * 12 * 16;
}

double FmaAvx512(int64_t rounds) {
  asm volatile("vzeroall" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15");
  for (int64_t r = 0; r < rounds; ++r) asm volatile(MOE_TWELVE("vfmadd231ps", "zmm")::: "memory");
  asm volatile("vzeroupper" ::: "memory");
  return static_cast<double>(rounds) * 12 * 32;
}

double DpAvx512(int64_t rounds) {
  asm volatile("vzeroall" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15");
  for (int64_t r = 0; r < rounds; ++r) asm volatile(MOE_TWELVE("vdpbf16ps", "zmm")::: "memory");
  asm volatile("vzeroupper" ::: "memory");
  return static_cast<double>(rounds) * 12 * 64;
}

double DpAmx(int64_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t rest[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  asm volatile("tilezero %%tmm0; tilezero %%tmm1; tilezero %%tmm2; tilezero %%tmm3; tilezero %%tmm4; tilezero %%tmm5" ::
                   : "memory");
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile(
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm0; tdpbf16ps %%tmm5, %%tmm4, %%tmm1;"
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm2; tdpbf16ps %%tmm5, %%tmm4, %%tmm3" ::
            : "memory");
  }
  asm volatile("tilerelease" ::: "memory");
  return static_cast<double>(rounds) * 4 * 2 * 16 * 16 * 32;
}

// Best rate of five runs on all threads.
double Peak(double (*run)(int64_t), int64_t rounds, WorkerPool& pool, ClockFn clock) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    double flops = 0;
    const auto start = clock();
    pool.Run([&](int thread) {
      const double f = run(rounds);
      if (thread == 0) flops = f * pool.num_threads();
    });
    best = std::max(best, flops / (clock() - start));
  }
  return best;
}

}  // namespace

double WallClock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuClock() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Bandwidth ReadBandwidth(WorkerPool& pool, ClockFn clock) {
  const int64_t bytes = int64_t{512} << 20;
  const int64_t window = int64_t{4} << 20;  // of a thread
  char* p = static_cast<char*>(std::aligned_alloc(size_t{2} << 20, static_cast<size_t>(bytes)));
  madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(p, 1, static_cast<size_t>(bytes));
  const int64_t part = bytes / pool.num_threads() / window * window;
  std::vector<double> rates;
  for (int pass = 0; pass < 4; ++pass) {
    for (int64_t at = 0; at < part; at += window) {
      const double start = clock();
      pool.Run([&](int thread) { ReadPart(p + thread * part + at, window); });
      rates.push_back(static_cast<double>(window * pool.num_threads()) / (clock() - start));
    }
  }
  std::free(p);
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

double PeakFmaFlops(CpuIsa isa, WorkerPool& pool, ClockFn clock) {
  return isa == CpuIsa::kAvx2 ? Peak(FmaAvx2, 2'000'000, pool, clock) : Peak(FmaAvx512, 1'000'000, pool, clock);
}

double PeakFlops(CpuIsa isa, WorkerPool& pool, ClockFn clock) {
  if (isa == CpuIsa::kAmx) return Peak(DpAmx, 500'000, pool, clock);
  if (isa == CpuIsa::kAvx512Bf16) return Peak(DpAvx512, 1'000'000, pool, clock);
  return PeakFmaFlops(isa, pool, clock);
}

}  // namespace moe::bench
