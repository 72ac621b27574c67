// GEMM tiles with float32 FMA: weights of any format are widened (exactly) in registers, A rows are float32.
//
// Order of the sum: one chain per output, k ascending: s = fma(a[k], w[k], s) from 0. It is the same on avx2 and
// avx512, for every format, row count and tile shape. After epilogue-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Register tiles. AVX-512: 12 rows × 2 blocks are 24 of 32 registers, the rest hold weights and a broadcast; each
// weight vector then serves 12 FMAs and each broadcast two, so neither the load ports nor the widening bound it.
// AVX2: a block is two registers, so 6 rows × 1 block are 12 of 16.
//
// Few rows wait for memory, not for arithmetic: they take both blocks of a panel, granule by granule, so that the
// weights are one ascending stream.
#ifdef __AVX512F__
inline constexpr int kFmaMaxRows = 12;
inline constexpr int kFmaTwoBlockRows = 12;
inline constexpr int kFmaStreamRows = 4;
#else
inline constexpr int kFmaMaxRows = 6;
inline constexpr int kFmaTwoBlockRows = 3;
inline constexpr int kFmaStreamRows = 3;
#endif

template <Element kFormat>
inline constexpr int64_t kGranuleBytesOf = kBlockN* kGranuleK*(kFormat == Element::kF32 ? 4 : 2);

// Adds inputs k and k + 1 of a granule to the sums of blocks [J0, J1).
template <Element kFormat, int MR, int NJ, int J0, int J1>
__attribute__((always_inline)) inline void FmaPair(const char* a, int64_t stride, const char* w, int k, int64_t ahead,
                                                   V (&acc)[MR][NJ]) {
  constexpr int64_t kRow = kFormat == Element::kF32 ? 64 : 32;  // bytes of one k
  const char* p = w + k * kRow;
  V even[NJ];
  V odd[NJ];
#pragma GCC unroll 2
  for (int j = J0; j < J1; ++j) {
    const char* q = p + j * kGranuleBytesOf<kFormat>;
    Prefetch(q + ahead);
    if constexpr (kFormat == Element::kBF16) {
      even[j] = Load(reinterpret_cast<const float*>(q));  // pairs, widened at their use
    } else if constexpr (kFormat == Element::kF16) {
      even[j] = WidenF16(q);
      odd[j] = WidenF16(q + kRow);
    } else {
      Prefetch(q + kRow + ahead);
      even[j] = Load(reinterpret_cast<const float*>(q));
      odd[j] = Load(reinterpret_cast<const float*>(q + kRow));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    const V x = Set(reinterpret_cast<const float*>(a + i * stride)[k]);
#pragma GCC unroll 2
    for (int j = J0; j < J1; ++j) {
      acc[i][j] = Fma(x, kFormat == Element::kBF16 ? EvenBf16(even[j]) : even[j], acc[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    const V x = Set(reinterpret_cast<const float*>(a + i * stride)[k + 1]);
#pragma GCC unroll 2
    for (int j = J0; j < J1; ++j) {
      acc[i][j] = Fma(x, kFormat == Element::kBF16 ? OddBf16(even[j]) : odd[j], acc[i][j]);
    }
  }
}

// MR rows × NJ blocks over all K. `step`: bytes from a granule of a block to its next one.
template <Element kFormat, int MR, int NJ>
__attribute__((noinline)) void FmaTile(const char* a, int64_t stride, const char* w, int64_t step, int64_t k_granules,
                                       int64_t ahead, float* sums) {
  V acc[MR][NJ];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < NJ; ++j) acc[i][j] = Zero();
  }
  for (int64_t g = 0; g < k_granules; ++g) {
    if constexpr (MR <= kFmaStreamRows) {
#pragma GCC unroll 4
      for (int k = 0; k < kGranuleK; k += 2) FmaPair<kFormat, MR, NJ, 0, 1>(a, stride, w, k, ahead, acc);
      if constexpr (NJ == 2) {
#pragma GCC unroll 4
        for (int k = 0; k < kGranuleK; k += 2) FmaPair<kFormat, MR, NJ, 1, 2>(a, stride, w, k, ahead, acc);
      }
    } else {
#pragma GCC unroll 1
      for (int k = 0; k < kGranuleK; k += 2) FmaPair<kFormat, MR, NJ, 0, NJ>(a, stride, w, k, ahead, acc);
    }
    a += kGranuleK * 4;
    w += step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < NJ; ++j) Store(sums + i * kTileStride + j * kBlockN, acc[i][j]);
  }
}

template <Element kFormat>
struct FmaMicro {
  static constexpr int64_t kMaxRows = kFmaMaxRows;
  static constexpr int64_t kGranuleBytes = kGranuleBytesOf<kFormat>;

  template <int MR>
  static void RunRows(int64_t nb, const char* a, int64_t stride, const char* w, int64_t k_granules, int64_t ahead,
                      float* sums) {
    const int64_t step = nb * kGranuleBytes;
    if (nb == 1) {
      FmaTile<kFormat, MR, 1>(a, stride, w, step, k_granules, ahead, sums);
    } else if constexpr (MR <= kFmaTwoBlockRows) {
      FmaTile<kFormat, MR, 2>(a, stride, w, step, k_granules, ahead, sums);
    } else {
      FmaTile<kFormat, MR, 1>(a, stride, w, step, k_granules, ahead, sums);
      FmaTile<kFormat, MR, 1>(a, stride, w + kGranuleBytes, step, k_granules, ahead, sums + kBlockN);
    }
  }
  template <int MR>
  static void Dispatch(int64_t m, int64_t nb, const char* a, int64_t stride, const char* w, int64_t kg, int64_t ahead,
                       float* sums) {
    if (m == MR) {
      RunRows<MR>(nb, a, stride, w, kg, ahead, sums);
    } else if constexpr (MR > 1) {
      Dispatch<MR - 1>(m, nb, a, stride, w, kg, ahead, sums);
    }
  }
  static void Run(int64_t m, int64_t nb, const char* a, int64_t stride, const char* w, int64_t kg, int64_t ahead,
                  float* sums) {
    Dispatch<kFmaMaxRows>(m, nb, a, stride, w, kg, ahead, sums);
  }
};

inline GemmFn ChooseFmaGemm(Element weights) {
  switch (weights) {
    case Element::kF32:
      return RunGemmBlock<FmaMicro<Element::kF32>>;
    case Element::kBF16:
      return RunGemmBlock<FmaMicro<Element::kBF16>>;
    case Element::kF16:
      return RunGemmBlock<FmaMicro<Element::kF16>>;
  }
  return nullptr;
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
