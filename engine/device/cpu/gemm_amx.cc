// GEMM tiles with AMX (TDPBF16PS): bf16 rows, bf16 weights.
//
// Order of the sum: per output one total; for each block of 32 k ascending, the instruction adds the 16 even products
// in one float32 FMA chain and the 16 odd ones in another, adds the two, and adds that to the total; denormals are
// flushed (architecture N3). Storing and reloading the totals between chunks of K is exact, so the order does not
// depend on the blocking.
#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS amx
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/amx_tiles-inl.h"
#include "engine/device/cpu/epilogue-inl.h"
// clang-format on

namespace moe::cpu {
namespace amx {
namespace {

constexpr int64_t kGranule = kBlockN * kGranuleK * 2;
constexpr int64_t kTileRows = 16;

// Granules of K summed before the next rows: two blocks of weights are then 16 KB, which stay in L1 (48 KB) while the
// rows stream through it from L2 at half the rate that tiles from L2 on both sides would need.
constexpr int64_t kChunk = 8;
// Rows whose totals are kept between chunks: 512 × 32 floats, 64 KB of L2.
constexpr int64_t kMaxRows = 512;

// Tiles: 0–3 totals (rows 0, 0, 1, 1 × blocks 0, 1, 0, 1), 4–5 rows, 6–7 weights.
void Configure(int64_t rows0, int64_t rows1) {
  const auto first = static_cast<uint8_t>(rows0);
  const auto second = static_cast<uint8_t>(rows1 > 0 ? rows1 : 1);
  AmxTiles::Configure({first, first, second, second, first, second, 16, 16});
}

// A tile of weights, so far ahead of its use.
inline void PrefetchTile(const char* p) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kGranule; i += 64) Prefetch(p + i);
}

// Adds `granules` of K to the totals of up to 32 rows × NB blocks. sums: [rows][kTileStride]. ahead > 0: the weights
// come from memory, and those so many bytes further are fetched meanwhile.
template <bool kTwoRows, bool kTwoBlocks>
void SumTiles(const char* a, int64_t stride, const char* w, int64_t granules, bool first, int64_t ahead, float* sums) {
  constexpr int64_t kStep = (kTwoBlocks ? 2 : 1) * kGranule;
  constexpr int64_t kSumStride = kTileStride * 4;
  float* sums1 = sums + kTileRows * kTileStride;
  if (first) {
    AmxTiles::Zero<0>();
    if (kTwoBlocks) AmxTiles::Zero<1>();
    if (kTwoRows) AmxTiles::Zero<2>();
    if (kTwoRows && kTwoBlocks) AmxTiles::Zero<3>();
  } else {
    AmxTiles::Load<0>(sums, kSumStride);
    if (kTwoBlocks) AmxTiles::Load<1>(sums + kBlockN, kSumStride);
    if (kTwoRows) AmxTiles::Load<2>(sums1, kSumStride);
    if (kTwoRows && kTwoBlocks) AmxTiles::Load<3>(sums1 + kBlockN, kSumStride);
  }
  for (int64_t g = 0; g < granules; ++g) {
    if (ahead > 0) {
      PrefetchTile(w + ahead);
      if (kTwoBlocks) PrefetchTile(w + kGranule + ahead);
    }
    AmxTiles::Load<6>(w, 64);
    AmxTiles::Load<4>(a, stride);
    AmxTiles::Product<0, 4, 6>();
    if (kTwoBlocks) {
      AmxTiles::Load<7>(w + kGranule, 64);
      AmxTiles::Product<1, 4, 7>();
    }
    if (kTwoRows) {
      AmxTiles::Load<5>(a + kTileRows * stride, stride);
      AmxTiles::Product<2, 5, 6>();
      if (kTwoBlocks) AmxTiles::Product<3, 5, 7>();
    }
    a += kGranuleK * 2;
    w += kStep;
  }
  AmxTiles::Store<0>(sums, kSumStride);
  if (kTwoBlocks) AmxTiles::Store<1>(sums + kBlockN, kSumStride);
  if (kTwoRows) AmxTiles::Store<2>(sums1, kSumStride);
  if (kTwoRows && kTwoBlocks) AmxTiles::Store<3>(sums1 + kBlockN, kSumStride);
}

void Sum(int64_t rows, int64_t nb, const char* a, int64_t stride, const char* w, int64_t granules, bool first,
         int64_t ahead, float* sums) {
  if (rows > kTileRows) {
    if (nb == 2) {
      SumTiles<true, true>(a, stride, w, granules, first, ahead, sums);
    } else {
      SumTiles<true, false>(a, stride, w, granules, first, ahead, sums);
    }
  } else if (nb == 2) {
    SumTiles<false, true>(a, stride, w, granules, first, ahead, sums);
  } else {
    SumTiles<false, false>(a, stride, w, granules, first, ahead, sums);
  }
}

void RunAmx(const GemmBlock& b) {
  alignas(64) float sums[kMaxRows * kTileStride];
  int64_t configured = 0;  // rows the tiles are set up for
  for (int64_t row0 = 0; row0 < b.rows; row0 += kMaxRows) {
    const int64_t rows = b.rows - row0 < kMaxRows ? b.rows - row0 : kMaxRows;
    const int64_t chunk = rows <= 2 * kTileRows ? b.k_granules : kChunk;
    const char* a = b.a + row0 * b.a_stride_bytes;
    const char* w = b.w;
    for (int64_t block = 0; block < b.blocks; block += kPanelBlocks) {
      const int64_t nb = b.blocks - block < kPanelBlocks ? b.blocks - block : kPanelBlocks;
      for (int64_t g = 0; g < b.k_granules; g += chunk) {
        const int64_t granules = b.k_granules - g < chunk ? b.k_granules - g : chunk;
        for (int64_t r = 0; r < rows; r += 2 * kTileRows) {
          const int64_t m = rows - r < 2 * kTileRows ? rows - r : 2 * kTileRows;
          if (m != configured) {
            Configure(m < kTileRows ? m : kTileRows, m - kTileRows);
            configured = m;
          }
          Sum(m, nb, a + r * b.a_stride_bytes + g * kGranuleK * 2, b.a_stride_bytes, w + g * nb * kGranule, granules,
              g == 0, r == 0 ? kPrefetchBytes : 0, sums + r * kTileStride);
        }
      }
      ApplyEpilogue(b.epilogue, sums, row0, rows, block, nb);
      w += nb * b.k_granules * kGranule;
    }
  }
  AmxTiles::Release();
}

}  // namespace
}  // namespace amx

GemmFn AmxGemm() {
  return amx::RunAmx;
}

}  // namespace moe::cpu
