// Softmax attention over paged bf16 K and V with bf16 products: all of it but the products themselves, which the path
// brings (attention_avx512bf16.cc, attention_amx-inl.h). AVX-512 with BF16. After attention_rows-inl.h.
//
// Order, per query row and head, whatever shares the pass with it:
//   for each split (8 blocks at absolute positions, 256 keys) ascending:
//     s_j = scale · (the path's sum over d) (+ a relative bias), soft-capped (· the position's scale)
//     m = max s_j over the visible j
//     p_j = bf16(2^x), x = fma(s_j, log2 e, -(m · log2 e)); of scores that are nothing but scaled sums,
//           x = fma(sum_j, scale · log2 e, -(m · log2 e)); invisible keys: 0
//     l = Sum16 of 16 chains over the split's pairs of keys, chain i taking pairs i, 16 + i, … by vdpbf16ps with ones
//     o_d = the path's sum of p_j · v_jd over the split's keys
//     the split is merged: M' = max(M, m);  a = exp(M - M');  b = exp(m - M');  L = L·a + l·b;  O = fma(o, b, O·a)
//   out = O / L, a sink first merged as a key without a value
// The weights that are summed are the rounded ones that multiply the values, so they add up to one.
//
// A key that a row does not see has weight 0 and may share its products nevertheless: adding ±0 changes a sum at most
// from -0 to +0. Its value must be finite for that. Keys that no row of the pass sees (perhaps never written) are zeros
// in the copy of the values; where others are not finite, the rows go position by position with copies of their own.
// K lies in its block as StoreKey (attention.cc) writes it: [d / 2][32 tokens][2], an odd last d as [32]; V as rows.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Floats from a row of scores to the next: not a power of two, whose rows would share a few sets of L1.
inline constexpr int64_t kScoreStride = kSplitKeys + 16;
// Bytes from 16 d of a split's values to the next 16, of 64 for each pair of keys.
inline constexpr int64_t kValueStep = kSplitKeys / 2 * 64 + 64;
// d that a row of queries is padded to: what one AMX product takes.
inline constexpr int64_t kQueryUnit = 32;
inline constexpr float kLog2E = 1.44269504088896341f;

// What one call works with, cut from AttentionTile::scratch. Rows behind the last, to whole tiles of 16 and 16 more,
// may be written.
struct Bf16State : RowSums {
  char* q;           // bf16 rows, zeros behind head_dim
  int64_t q_stride;  // bytes
  float* s;          // rows of kScoreStride: scores of a split; then, in the first half of each, weights in bf16
  char* v;           // values of a split: [width / 16][128 pairs of keys][16 d][2]
  char* keys;        // 2 KB: the last d of a block, padded to kQueryUnit
  int64_t split_block, first_block, last_block;  // those of the split with keys that the pass sees: [first, last)

  char* weights(int64_t row) const { return reinterpret_cast<char*>(s + row * kScoreStride); }
};

inline int64_t QueryStride(int64_t head_dim) {
  return (head_dim + kQueryUnit - 1) / kQueryUnit * kQueryUnit * 2 + 64;
}
inline int64_t PaddedRows(int64_t rows) {
  return RoundUp16(rows) + 16;
}

inline int64_t Bf16ScratchFloats(int64_t rows, int64_t head_dim, int64_t v_head_dim) {
  const int64_t width = RoundUp16(v_head_dim);
  return PaddedRows(rows) * (kScoreStride + 2 * width + QueryStride(head_dim) / 4 + 4) + width / 16 * kValueStep / 4 +
         kQueryUnit * kKeys * 2 / 4;
}

inline Bf16State CutBf16Scratch(const AttentionTile& t) {
  Bf16State a{};
  a.rows = t.count * t.group;
  a.width = RoundUp16(t.v_head_dim);
  a.q_stride = QueryStride(t.head_dim);
  const int64_t rows = PaddedRows(a.rows);
  float* p = t.scratch;  // every piece a multiple of 64 bytes
  auto take = [&p](int64_t n) {
    float* begin = p;
    p += n;
    return begin;
  };
  a.s = take(rows * kScoreStride);
  a.o = take(rows * a.width);
  a.total = take(rows * a.width);
  a.q = reinterpret_cast<char*>(take(rows * a.q_stride / 4));
  a.v = reinterpret_cast<char*>(take(a.width / 16 * kValueStep / 4));
  a.keys = reinterpret_cast<char*>(take(kQueryUnit * kKeys * 2 / 4));
  a.m = take(rows);
  a.l = take(rows);
  a.total_m = take(rows);
  a.total_l = take(rows);
  return a;
}

inline void CopyQueries(const AttentionTile& t, Bf16State& a) {
  const int64_t bytes = t.head_dim * 2;
  for (int64_t r = 0; r < a.rows; ++r) {
    char* to = a.q + r * a.q_stride;
    memcpy(to, t.q + r / t.group * t.q_row_bytes + r % t.group * bytes, static_cast<size_t>(bytes));
    memset(to + bytes, 0, static_cast<size_t>(a.q_stride - bytes));
  }
}

// Whether scores are the scaled sums and no more: the softmax then scales them on its way.
inline bool PlainScores(const AttentionTile& t) {
  return t.relative == nullptr && t.logit_cap <= 0 && t.scale > 0;
}

// Turns a block's sums, [32] of each row, into scores that are not plain.
inline void FinishScores(const AttentionTile& t, Bf16State& a, int64_t block, RowRange rows) {
  float* scores = a.s + (block - a.split_block) * kKeys;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* s = scores + r * kScoreStride;
    Store(s, Mul(Load(s), Set(t.scale)));
    Store(s + 16, Mul(Load(s + 16), Set(t.scale)));
  }
  if (t.relative != nullptr) AddRelativeBias(t, scores, kScoreStride, block, rows);
  if (t.logit_cap <= 0) return;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* s = scores + r * kScoreStride;
    const V scale = Set(t.score_scale != nullptr ? t.score_scale[r / t.group] : 1.0f);
    Store(s, Mul(SoftCap(Load(s), t.logit_cap), scale));
    Store(s + 16, Mul(SoftCap(Load(s + 16), t.logit_cap), scale));
  }
}

// 2^x, x ≤ 0 or little more, within 3e-6: to be rounded to bf16. x = r + n, |r| ≤ ½; a minimax polynomial with 2^0 = 1.
// NaN stays NaN.
inline V Weight(V x) {
  x = Max(Set(-160.0f), x);
  const V n = Round(x);
  const V r = Sub(x, n);
  V p = Set(9.5828566e-3f);
  p = Fma(p, r, Set(5.5906446e-2f));
  p = Fma(p, r, Set(2.4024099e-1f));
  p = Fma(p, r, Set(6.9312419e-1f));
  p = Fma(p, r, Set(1.0f));
  return ScaleByPow2(p, n);
}

// 32 bf16 from two times 16 floats, nearest even, denormals as zero.
inline __m512i RoundPairs(V low, V high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Scores of the split to weights, m and l.
inline void WeighRows(const AttentionTile& t, Bf16State& a) {
  const V lowest = Set(-__builtin_inff());
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  const float scale = PlainScores(t) ? t.scale : 1.0f;
  const V factor = Set(scale * kLog2E);
  const int64_t first = a.first_block - a.split_block;
  const int64_t last = a.last_block - a.split_block;
  for (int64_t r = 0; r < a.rows; ++r) {
    const auto [lo, hi] = VisibleOf(t, t.first_pos + r / t.group, a.split_block * kKeys, kSplitKeys);
    float* s = a.s + r * kScoreStride;
    char* p = a.weights(r);
    if (hi <= lo) {
      a.m[r] = -__builtin_inff();
      a.l[r] = 0;
      for (int64_t b = first; b < last; ++b) _mm512_storeu_si512(p + b * kKeys * 2, _mm512_setzero_si512());
      continue;
    }
    // Its own blocks: whole ones, and ends of which it sees a part.
    const int64_t begin = lo / kKeys;
    const int64_t end = (hi + kKeys - 1) / kKeys;
    const auto whole = [lo = lo, hi = hi](int64_t b) { return b * kKeys >= lo && (b + 1) * kKeys <= hi; };
    V max = lowest;
    for (int64_t b = begin; b < end; ++b) {
      V s0 = Load(s + b * kKeys);
      V s1 = Load(s + b * kKeys + 16);
      if (!whole(b)) {
        s0 = KeepLanes(s0, lo - b * kKeys, hi - b * kKeys, lowest);
        s1 = KeepLanes(s1, lo - b * kKeys - 16, hi - b * kKeys - 16, lowest);
      }
      max = Max(s0, max);
      max = Max(s1, max);
    }
    a.m[r] = MaxLane(max) * scale;
    const V shift = Set(-(a.m[r] * kLog2E));
    // A block's weights overwrite scores that have been read: of the block or one before it.
    for (int64_t b = first; b < begin; ++b) _mm512_storeu_si512(p + b * kKeys * 2, _mm512_setzero_si512());
    V sum = Zero();
    for (int64_t b = begin; b < end; ++b) {
      V p0 = Weight(Fma(Load(s + b * kKeys), factor, shift));
      V p1 = Weight(Fma(Load(s + b * kKeys + 16), factor, shift));
      if (!whole(b)) {
        p0 = KeepLanes(p0, lo - b * kKeys, hi - b * kKeys, Zero());
        p1 = KeepLanes(p1, lo - b * kKeys - 16, hi - b * kKeys - 16, Zero());
      }
      const __m512i pairs = RoundPairs(p0, p1);
      _mm512_storeu_si512(p + b * kKeys * 2, pairs);
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pairs), ones);
    }
    for (int64_t b = end; b < last; ++b) _mm512_storeu_si512(p + b * kKeys * 2, _mm512_setzero_si512());
    a.l[r] = Sum(sum);
  }
}

// Lanes of 16 bits that are infinite or NaN.
inline __mmask32 NotFinite(__m512i x) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  return _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
}

// Keys [lo, hi) of a block of rows of values, the others as zeros, to out: [width / 16] pieces, kValueStep apart, of
// [16 pairs of keys][16 d][2]. Whether all are finite.
inline bool PairValues(const char* v, int64_t v_dim, KeyRange keys, char* out) {
  const __m512i even = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                        5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(16));
  __mmask32 bad = 0;
  for (int64_t j = 0; j < kKeys; j += 2) {
    const bool first = j >= keys.lo && j < keys.hi;
    const bool second = j + 1 >= keys.lo && j + 1 < keys.hi;
    const char* row = v + j * v_dim * 2;
    char* to = out + j * 32;
    for (int64_t d = 0; d < v_dim; d += 32, to += 2 * kValueStep) {
      const int64_t n = v_dim - d;
      const __mmask32 valid = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
      const __m512i a = _mm512_maskz_loadu_epi16(first ? valid : 0, row + d * 2);
      const __m512i b = _mm512_maskz_loadu_epi16(second ? valid : 0, row + (v_dim + d) * 2);
      bad |= NotFinite(a) | NotFinite(b);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, even, b));
      if (n > 16) _mm512_storeu_si512(to + kValueStep, _mm512_permutex2var_epi16(a, odd, b));
    }
  }
  return bad == 0;
}

// Vector c of quarters q, 128 bits each, becomes quarters c of x[0 … 3].
inline void TransposeQuarters(__m512i (&x)[4]) {
  const __m512i even0 = _mm512_shuffle_i64x2(x[0], x[1], 0x88);
  const __m512i even1 = _mm512_shuffle_i64x2(x[2], x[3], 0x88);
  const __m512i odd0 = _mm512_shuffle_i64x2(x[0], x[1], 0xdd);
  const __m512i odd1 = _mm512_shuffle_i64x2(x[2], x[3], 0xdd);
  x[0] = _mm512_shuffle_i64x2(even0, even1, 0x88);
  x[1] = _mm512_shuffle_i64x2(odd0, odd1, 0x88);
  x[2] = _mm512_shuffle_i64x2(even0, even1, 0xdd);
  x[3] = _mm512_shuffle_i64x2(odd0, odd1, 0xdd);
}

// The same of values that are the first v_dim dims of a block of keys.
inline bool PairValuesOfKeys(const char* k, int64_t head_dim, int64_t v_dim, KeyRange keys, char* out) {
  // Of two neighbouring tokens' pairs of d, the two pairs of tokens: words 0 2 1 3 of each 64 bits.
  const __m512i swap = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  __mmask32 bad = 0;
  for (int64_t d = 0; d < v_dim; d += 16, out += kValueStep) {
    for (int64_t j = 0; j < kKeys; j += 16) {
      const int64_t lo = keys.lo < j ? 0 : keys.lo - j;
      const int64_t hi = keys.hi > j + 16 ? 16 : keys.hi - j;
      const auto seen = hi > lo ? static_cast<__mmask16>(FirstLanes(hi) & ~FirstLanes(lo)) : static_cast<__mmask16>(0);
      __m512i x[8];
#pragma GCC unroll 8
      for (int64_t u = 0; u < 8; ++u) {
        const char* p = k + (d / 2 + u) * kKeys * 4;
        const int64_t at = d + 2 * u;
        x[u] = _mm512_setzero_si512();
        if (at + 1 < head_dim) {
          x[u] = _mm512_maskz_loadu_epi32(seen, p + j * 4);
        } else if (at < head_dim) {
          x[u] = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(seen, p + j * 2));
        }
        bad |= NotFinite(x[u]);
        x[u] = _mm512_shuffle_epi8(x[u], swap);
      }
      __m512i first[4];
      __m512i second[4];
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        first[u] = _mm512_unpacklo_epi64(x[2 * u], x[2 * u + 1]);
        second[u] = _mm512_unpackhi_epi64(x[2 * u], x[2 * u + 1]);
      }
      TransposeQuarters(first);
      TransposeQuarters(second);
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        _mm512_storeu_si512(out + j * 32 + 2 * u * 64, first[u]);
        _mm512_storeu_si512(out + j * 32 + (2 * u + 1) * 64, second[u]);
      }
    }
  }
  return bad == 0;
}

// The values of the split that the positions [first_pos, last_pos] see. Whether all that some of these do not see are
// finite.
inline bool PairSplit(const AttentionTile& t, Bf16State& a, int64_t first_pos, int64_t last_pos) {
  bool finite = true;
  for (int64_t block = a.first_block; block < a.last_block; ++block) {
    if (block + 1 < a.last_block) PrefetchValues(t, block + 1);
    const KeyRange first = VisibleKeys(t, first_pos, block);
    const KeyRange last = VisibleKeys(t, last_pos, block);
    const KeyRange keys{first.lo, last.hi};
    char* out = a.v + (block - a.split_block) * kKeys * 32;
    const int64_t physical = t.blocks[block];
    const bool block_finite =
        t.v == nullptr ? PairValuesOfKeys(t.k + physical * t.k_block_bytes, t.head_dim, t.v_head_dim, keys, out)
                       : PairValues(t.v + physical * t.v_block_bytes, t.v_head_dim, keys, out);
    if (!block_finite && (first.lo != last.lo || first.hi != last.hi)) finite = false;
  }
  return finite;
}

// Products: Begin(rows) … End() around a call;
//   Scores(t, a, keys, rows, sums): the sums of a block for the rows (and perhaps others), [32] at each row of scores
//   Values(t, a, rows): o of the rows (and perhaps of some behind them) from weights and paired values
template <typename Products>
void AttendBf16(const AttentionTile& t) {
  Bf16State a = CutBf16Scratch(t);
  CopyQueries(t, a);
  ClearTotals(a);
  Products::Begin(a.rows);
  const int64_t last_pos = t.first_pos + t.count - 1;
  for (int64_t split = t.split_begin; split < t.split_end; ++split) {
    a.split_block = split * kAttentionSplit;
    const int64_t lo = VisibleOf(t, t.first_pos, a.split_block * kKeys, kSplitKeys).lo;
    const int64_t hi = VisibleOf(t, last_pos, a.split_block * kKeys, kSplitKeys).hi;
    a.first_block = a.split_block + lo / kKeys;
    a.last_block = hi > lo ? a.split_block + (hi + kKeys - 1) / kKeys : a.first_block;
    for (int64_t block = a.first_block; block < a.last_block; ++block) {
      if (block + 1 < a.last_block) PrefetchKeys(t, block + 1);
      PrefetchValues(t, block);
      const RowRange rows = RowsOfBlock(t, block);
      float* sums = a.s + (block - a.split_block) * kKeys;
      Products::Scores(t, a, t.k + t.blocks[block] * t.k_block_bytes, rows, sums);
      if (!PlainScores(t)) FinishScores(t, a, block, rows);
    }
    WeighRows(t, a);
    if (a.first_block < a.last_block) {
      if (PairSplit(t, a, t.first_pos, last_pos)) {
        Products::Values(t, a, {0, a.rows});
      } else {
        for (int64_t i = 0; i < t.count; ++i) {
          PairSplit(t, a, t.first_pos + i, t.first_pos + i);
          Products::Values(t, a, {i * t.group, (i + 1) * t.group});
        }
      }
    }
    FinishSplit(t, a, split);
  }
  Products::End();
  if (t.partials == nullptr) WriteRows(t, a);
}

inline void MergeBf16Partials(const AttentionTile& t) {
  Bf16State a = CutBf16Scratch(t);
  MergeSplits(t, a);
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
