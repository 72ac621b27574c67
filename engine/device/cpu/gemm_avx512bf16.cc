// GEMM tiles with vdpbf16ps: bf16 rows, bf16 weights, no widening; per instruction 32 multiply-adds, so twice the FMA
// path where the processor runs it at full rate (Zen 4 does).
//
// Order of the sum: one chain per output over pairs of k, ascending: s = dp(s, a[k..k+1], w[k..k+1]) from 0. dp is the
// instruction's own: fma(a[k], w[k], fma(a[k+1], w[k+1], s)), each rounded to nearest even, denormals in and out taken
// as zero (tests/engine/device/gemm_order_test.cc checks this formula against the processor).
#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS avx512bf16
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/epilogue-inl.h"
// clang-format on

namespace moe::cpu {
namespace avx512bf16 {
namespace {

// 12 rows × 2 blocks in 24 of 32 registers, as the FMA tiles.
inline constexpr int kDpMaxRows = 12;
// Up to this many rows a tile waits for memory, not for arithmetic (12 rows so are at a third of the speed: spills).
inline constexpr int kStreamRows = 4;

inline __m512bh BroadcastPair(const char* p) {
  int pair;
  memcpy(&pair, p, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int MR, int NJ>
__attribute__((noinline)) void DpTile(const char* a, int64_t stride, const char* w, int64_t k_granules, int64_t ahead,
                                      float* sums) {
  constexpr int64_t kGranule = kBlockN * kGranuleK * 2;
  __m512 acc[MR][NJ];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < NJ; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < k_granules; ++g) {
    if constexpr (MR <= kStreamRows) {
      // Block by block: the weights are then one ascending stream.
#pragma GCC unroll 2
      for (int j = 0; j < NJ; ++j) {
#pragma GCC unroll 4
        for (int k = 0; k < kGranuleK; k += 2) {
          const char* p = w + j * kGranule + k * 32;
          Prefetch(p + ahead);
          const auto y = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
#pragma GCC unroll 16
          for (int i = 0; i < MR; ++i) {
            acc[i][j] = _mm512_dpbf16_ps(acc[i][j], BroadcastPair(a + i * stride + k * 2), y);
          }
        }
      }
    } else {
#pragma GCC unroll 4
      for (int k = 0; k < kGranuleK; k += 2) {
        __m512bh y[NJ];
#pragma GCC unroll 2
        for (int j = 0; j < NJ; ++j) {
          const char* p = w + j * kGranule + k * 32;
          Prefetch(p + ahead);
          y[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
        }
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) {
          const __m512bh x = BroadcastPair(a + i * stride + k * 2);
#pragma GCC unroll 2
          for (int j = 0; j < NJ; ++j) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], x, y[j]);
        }
      }
    }
    a += kGranuleK * 2;
    w += NJ * kGranule;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < NJ; ++j) Store(sums + i * kTileStride + j * kBlockN, acc[i][j]);
  }
}

struct DpMicro {
  static constexpr int64_t kMaxRows = kDpMaxRows;
  static constexpr int64_t kGranuleBytes = kBlockN * kGranuleK * 2;

  template <int MR>
  static void Dispatch(int64_t m, int64_t nb, const char* a, int64_t stride, const char* w, int64_t kg, int64_t ahead,
                       float* sums) {
    if (m == MR) {
      if (nb == 2) {
        DpTile<MR, 2>(a, stride, w, kg, ahead, sums);
      } else {
        DpTile<MR, 1>(a, stride, w, kg, ahead, sums);
      }
    } else if constexpr (MR > 1) {
      Dispatch<MR - 1>(m, nb, a, stride, w, kg, ahead, sums);
    }
  }
  static void Run(int64_t m, int64_t nb, const char* a, int64_t stride, const char* w, int64_t kg, int64_t ahead,
                  float* sums) {
    Dispatch<kDpMaxRows>(m, nb, a, stride, w, kg, ahead, sums);
  }
};

}  // namespace
}  // namespace avx512bf16

GemmFn Avx512Bf16Gemm() {
  return avx512bf16::RunGemmBlock<avx512bf16::DpMicro>;
}

}  // namespace moe::cpu
