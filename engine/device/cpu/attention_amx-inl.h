// Attention with AMX. After attention_bf16-inl.h.
//
// The sum of a score, and of an output: one total from 0; for each 32 d (of a score; zeros behind head_dim) or each
// block of 32 keys ascending, TDPBF16PS adds the even products in one chain and the odd ones in another, adds the two,
// and adds that to the total (gemm_amx.cc has it in full); the rest of the order is in attention_bf16-inl.h. Blocks
// that no row of the pass sees are left out: their weights are zeros.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Tiles: 0–3 sums (rows 0, 0, 1, 1 × columns 0, 1, 0, 1), 4–5 rows, 6–7 keys or values. Rows go by whole tiles of 16
// (the scratch is padded), or, where there are less, by one of so many: one setup is enough for a call.
template <typename Tiles>
struct AmxProducts {
  static constexpr int64_t kTileRows = 16;

  static void Begin(int64_t rows) {
    const auto used = static_cast<uint8_t>(rows < kTileRows ? rows : kTileRows);
    Tiles::Configure({used, used, used, used, used, used, 16, 16});
  }
  static void End() { Tiles::Release(); }

  // Sums of up to 2 × 2 tiles over `steps` of 32: a advances by 64 bytes a step, b by b_step. `sums`: rows sums_stride
  // bytes apart.
  struct Operands {
    const char* a;
    int64_t a_stride;
    const char* b0;  // of columns 0 … 15, rows b_stride apart
    const char* b1;  // of columns 16 … 31
    int64_t b_stride;
    int64_t b_step;
  };
  template <bool kTwoRows, bool kTwoColumns>
  static void Add(const Operands& x, int64_t steps) {
    const char* a1 = x.a + kTileRows * x.a_stride;
    for (int64_t i = 0; i < steps; ++i) {
      Tiles::template Load<6>(x.b0 + i * x.b_step, x.b_stride);
      Tiles::template Load<4>(x.a + i * 64, x.a_stride);
      Tiles::template Product<0, 4, 6>();
      if constexpr (kTwoColumns) {
        Tiles::template Load<7>(x.b1 + i * x.b_step, x.b_stride);
        Tiles::template Product<1, 4, 7>();
      }
      if constexpr (kTwoRows) {
        Tiles::template Load<5>(a1 + i * 64, x.a_stride);
        Tiles::template Product<2, 5, 6>();
        if constexpr (kTwoColumns) Tiles::template Product<3, 5, 7>();
      }
    }
  }
  template <bool kTwoRows, bool kTwoColumns>
  static void Clear() {
    Tiles::template Zero<0>();
    if constexpr (kTwoColumns) Tiles::template Zero<1>();
    if constexpr (kTwoRows) Tiles::template Zero<2>();
    if constexpr (kTwoRows && kTwoColumns) Tiles::template Zero<3>();
  }
  template <bool kTwoRows, bool kTwoColumns>
  static void Keep(float* sums, int64_t stride) {
    float* sums1 = sums + kTileRows * stride;
    Tiles::template Store<0>(sums, stride * 4);
    if constexpr (kTwoColumns) Tiles::template Store<1>(sums + 16, stride * 4);
    if constexpr (kTwoRows) Tiles::template Store<2>(sums1, stride * 4);
    if constexpr (kTwoRows && kTwoColumns) Tiles::template Store<3>(sums1 + 16, stride * 4);
  }

  template <bool kTwoRows>
  static void ScoreTile(const Bf16State& a, const char* keys, int64_t head_dim, int64_t row, float* sums) {
    // A block's keys: [d / 2][32][2], the second 16 of them 64 bytes behind the first.
    Operands x{a.q + row * a.q_stride, a.q_stride, keys, keys + 64, kKeys * 4, kQueryUnit / 2 * kKeys * 4};
    const int64_t steps = head_dim / kQueryUnit;
    Clear<kTwoRows, true>();
    Add<kTwoRows, true>(x, steps);
    if (head_dim % kQueryUnit != 0) {
      x.a += steps * 64;
      x.b0 = a.keys;
      x.b1 = a.keys + 64;
      Add<kTwoRows, true>(x, 1);
    }
    Keep<kTwoRows, true>(sums + row * kScoreStride, kScoreStride);
  }

  // The last d of a block, head_dim % 32 of them, with zeros behind: in the cache another head follows.
  static void PadKeys(const char* keys, int64_t head_dim, char* out) {
    const int64_t first = head_dim / kQueryUnit * kQueryUnit;
    const char* from = keys + first / 2 * kKeys * 4;
    for (int64_t d = first; d < first + kQueryUnit; d += 2, from += kKeys * 4, out += kKeys * 4) {
      __m512i k0 = _mm512_setzero_si512();
      __m512i k1 = k0;
      if (d + 1 < head_dim) {
        k0 = _mm512_loadu_si512(from);
        k1 = _mm512_loadu_si512(from + 64);
      } else if (d < head_dim) {
        k0 = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        k1 = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
      }
      _mm512_storeu_si512(out, k0);
      _mm512_storeu_si512(out + 64, k1);
    }
  }

  static void Scores(const AttentionTile& t, const Bf16State& a, const char* keys, RowRange rows, float* sums) {
    if (t.head_dim % kQueryUnit != 0) PadKeys(keys, t.head_dim, a.keys);
    for (int64_t r = rows.begin / kTileRows * kTileRows; r < rows.end; r += 2 * kTileRows) {
      if (r + kTileRows < rows.end) {
        ScoreTile<true>(a, keys, t.head_dim, r, sums);
      } else {
        ScoreTile<false>(a, keys, t.head_dim, r, sums);
      }
    }
  }

  template <bool kTwoRows, bool kTwoColumns>
  static void ValueTile(const Bf16State& a, int64_t row, int64_t d) {
    const int64_t first = a.first_block - a.split_block;
    const char* v = a.v + d / 16 * kValueStep + first * kKeys * 32;
    const Operands x{a.weights(row) + first * kKeys * 2, kScoreStride * 4, v, v + kValueStep, 64, kKeys * 32};
    Clear<kTwoRows, kTwoColumns>();
    Add<kTwoRows, kTwoColumns>(x, a.last_block - a.first_block);
    Keep<kTwoRows, kTwoColumns>(a.o + row * a.width + d, a.width);
  }

  // Behind the last row a tile writes to rows that are yet to come, or padding.
  static void Values(const AttentionTile&, const Bf16State& a, RowRange rows) {
    for (int64_t d = 0; d < a.width; d += 32) {
      const bool two_columns = d + 16 < a.width;
      for (int64_t r = rows.begin; r < rows.end; r += 2 * kTileRows) {
        if (r + kTileRows < rows.end) {
          if (two_columns) {
            ValueTile<true, true>(a, r, d);
          } else {
            ValueTile<true, false>(a, r, d);
          }
        } else if (two_columns) {
          ValueTile<false, true>(a, r, d);
        } else {
          ValueTile<false, false>(a, r, d);
        }
      }
    }
  }
};

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
