// Attention with vdpbf16ps.
//
// The sum of a score: one chain over pairs of d ascending, s = dp(s, q[d..d+1], k[d..d+1]) from 0 (an odd last d is
// paired with zeros). The sum of an output: one chain over pairs of keys ascending, o = dp(o, p[j..j+1], v[j..j+1])
// from 0. dp as gemm_avx512bf16.cc has it; the rest of the order is in attention_bf16-inl.h.
#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS avx512bf16
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/attention_rows-inl.h"
#include "engine/device/cpu/attention_bf16-inl.h"
// clang-format on

namespace moe::cpu {
namespace avx512bf16 {
namespace {

inline __m512bh BroadcastPair(const char* p) {
  int pair;
  memcpy(&pair, p, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}
inline __m512bh LoadPairs(const char* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}
// 16 single bf16, each with a zero behind it.
inline __m512bh LoadSingles(const char* p) {
  return reinterpret_cast<__m512bh>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}

// 24 of 32 registers hold sums, but for single rows.
inline constexpr int kDpScoreRows = 12;
inline constexpr int kDpValueRows = 6;

// MR rows × 32 keys.
template <int MR>
__attribute__((noinline)) void ScoreTile(const char* q, int64_t q_stride, const char* k, int64_t head_dim, float* s) {
  __m512 acc[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
  const auto step = [&](__m512bh k0, __m512bh k1) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const __m512bh x = BroadcastPair(q + i * q_stride);
      acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, k0);
      acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, k1);
    }
  };
  for (int64_t d = 0; d + 2 <= head_dim; d += 2, q += 4, k += kKeys * 4) step(LoadPairs(k), LoadPairs(k + 64));
  if (head_dim % 2 != 0) step(LoadSingles(k), LoadSingles(k + 32));
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    Store(s + i * kScoreStride, acc[i][0]);
    Store(s + i * kScoreStride + 16, acc[i][1]);
  }
}

// MR rows × NV times 16 d over `pairs` pairs of keys.
template <int MR, int NV>
__attribute__((noinline)) void ValueTile(const char* p, const char* v, int64_t pairs, int64_t width, float* o) {
  __m512 acc[MR][NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) acc[i][n] = _mm512_setzero_ps();
  }
  for (int64_t j = 0; j < pairs; ++j, p += 4, v += 64) {
    __m512bh x[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) x[n] = LoadPairs(v + n * kValueStep);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const __m512bh w = BroadcastPair(p + i * kScoreStride * 4);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) acc[i][n] = _mm512_dpbf16_ps(acc[i][n], w, x[n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) Store(o + i * width + n * 16, acc[i][n]);
  }
}

// fn(row, constant) for rows [begin, end) in tiles of MR, then of fewer: the constant's value says of how many.
template <int N>
struct Rows {
  static constexpr int kCount = N;
};
template <int MR, typename Fn>
void ForTiles(int64_t begin, int64_t end, const Fn& fn) {
  for (; begin + MR <= end; begin += MR) fn(begin, Rows<MR>());
  if constexpr (MR > 1) {
    constexpr int kNext = MR > 8 ? 8 : MR > 4 ? 4 : MR / 2;
    if (begin < end) ForTiles<kNext>(begin, end, fn);
  }
}

struct DpProducts {
  static void Begin(int64_t) {}
  static void End() {}

  static void Scores(const AttentionTile& t, const Bf16State& a, const char* keys, RowRange rows, float* sums) {
    ForTiles<kDpScoreRows>(rows.begin, rows.end, [&](int64_t r, auto tile) {
      ScoreTile<decltype(tile)::kCount>(a.q + r * a.q_stride, a.q_stride, keys, t.head_dim, sums + r * kScoreStride);
    });
  }

  static void Values(const AttentionTile& t, const Bf16State& a, RowRange rows) {
    int64_t d = 0;
    for (; d + 64 <= a.width; d += 64) Columns<4>(t, a, rows, d);
    if (d + 32 <= a.width) {
      Columns<2>(t, a, rows, d);
      d += 32;
    }
    if (d < a.width) Columns<1>(t, a, rows, d);
  }

  template <int NV>
  static void Columns(const AttentionTile& t, const Bf16State& a, RowRange rows, int64_t d) {
    const char* v = a.v + d / 16 * kValueStep;
    ForTiles<kDpValueRows>(rows.begin, rows.end, [&](int64_t r, auto tile) {
      constexpr int kRows = decltype(tile)::kCount;
      // The pairs that some of the rows see: the weights of the others are zeros.
      const int64_t split = a.split_block * kKeys;
      const int64_t lo = VisibleOf(t, t.first_pos + r / t.group, split, kSplitKeys).lo / 2;
      const int64_t hi = (VisibleOf(t, t.first_pos + (r + kRows - 1) / t.group, split, kSplitKeys).hi + 1) / 2;
      ValueTile<kRows, NV>(a.weights(r) + lo * 4, v + lo * 64, hi - lo, a.width, a.o + r * a.width + d);
    });
  }
};

}  // namespace
}  // namespace avx512bf16

AttentionKernels Avx512Bf16Attention() {
  using namespace avx512bf16;
  return {AttendBf16<DpProducts>, MergeBf16Partials, Bf16ScratchFloats};
}

}  // namespace moe::cpu
