// Softmax attention over paged K and V, products by float32 FMA. After attention_rows-inl.h.
//
// Order, per query row and head, whatever shares the pass with it:
//   for each split (8 blocks at absolute positions) ascending: m = -inf, l = 0, o = 0
//     for each block of 32 keys ascending that has a visible key:
//       s_j = scale · (one FMA chain over d from 0) (+ a relative bias), soft-capped (· the position's scale)
//       invisible keys: -inf
//       m' = max(m, max s);  c = exp(m - m');  p_j = exp(s_j - m')
//       l = l·c + Sum16(p_0..15 + p_16..31);  o_d = o_d·c, then fma(p_j, v_jd, o_d) over the visible j ascending
//     the split is merged: M' = max(M, m);  a = exp(M - M');  b = exp(m - M');  L = L·a + l·b;  O = fma(o, b, O·a)
//   out = O / L, a sink first merged as a key without a value
// K lies in its block as StoreKey (attention.cc) writes it: [d / 2][32 tokens][2] in bf16 (an odd last d: [32]),
// [d][32] in float32. A score is then a lane and needs no horizontal sum, and nothing is transposed when reading.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Register tiles: rows × 2 vectors of keys for the scores, rows × up to 4 (2) vectors of d for the values.
#ifdef __AVX512F__
inline constexpr int kScoreRows = 4;
inline constexpr int kValueRows = 4;
inline constexpr int kValueVectors = 4;
#else
inline constexpr int kScoreRows = 2;
inline constexpr int kValueRows = 2;
inline constexpr int kValueVectors = 2;
#endif

// The keys of a block: as they are in the cache, or widened to [head_dim][32].
struct KeyBlock {
  const char* data;
  bool bf16;
};

// out[d][32], widened. For many rows, where every pass would widen again.
inline void WidenKeys(const char* k, int64_t head_dim, float* out) {
  int64_t d = 0;
  for (; d + 2 <= head_dim; d += 2, k += kKeys * 4, out += 2 * kKeys) {
    const V first = Load(reinterpret_cast<const float*>(k));
    const V second = Load(reinterpret_cast<const float*>(k) + 16);
    Store(out, EvenBf16(first));
    Store(out + 16, EvenBf16(second));
    Store(out + kKeys, OddBf16(first));
    Store(out + kKeys + 16, OddBf16(second));
  }
  if (d < head_dim) {
    Store(out, WidenBf16(k));
    Store(out + 16, WidenBf16(k + 32));
  }
}

// out[32][width]: the first v_dim dims of keys [d][32], turned; width is v_dim rounded up to 16.
inline void ValuesOfKeys(const float* keys, int64_t v_dim, int64_t width, float* out) {
  for (int64_t d = 0; d < width; d += 16) {
    for (int64_t j = 0; j < kKeys; j += 16) {
      V x[16];
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) x[i] = d + i < v_dim ? Load(keys + (d + i) * kKeys + j) : Zero();
      Transpose(x);
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) Store(out + (j + i) * width + d, x[i]);
    }
  }
}

template <int MR>
inline void ScoreStep(const float* q, int64_t q_stride, V k0, V k1, V (&acc)[MR][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    const V x = Set(q[i * q_stride]);
    acc[i][0] = Fma(x, k0, acc[i][0]);
    acc[i][1] = Fma(x, k1, acc[i][1]);
  }
}

// s[i][32] for MR rows.
template <int MR>
inline void ScoreTile(const float* q, int64_t q_stride, const KeyBlock& k, int64_t head_dim, V scale, float* s) {
  V acc[MR][2];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) acc[i][0] = acc[i][1] = Zero();
  const char* p = k.data;
  if (k.bf16) {
    int64_t d = 0;
    for (; d + 2 <= head_dim; d += 2, p += kKeys * 4) {
      const V first = Load(reinterpret_cast<const float*>(p));
      const V second = Load(reinterpret_cast<const float*>(p) + 16);
      ScoreStep<MR>(q + d, q_stride, EvenBf16(first), EvenBf16(second), acc);
      ScoreStep<MR>(q + d + 1, q_stride, OddBf16(first), OddBf16(second), acc);
    }
    if (d < head_dim) ScoreStep<MR>(q + d, q_stride, WidenBf16(p), WidenBf16(p + 32), acc);
  } else {
    for (int64_t d = 0; d < head_dim; ++d, p += kKeys * 4) {
      const auto* row = reinterpret_cast<const float*>(p);
      ScoreStep<MR>(q + d, q_stride, Load(row), Load(row + 16), acc);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    Store(s + i * kKeys, Mul(acc[i][0], scale));
    Store(s + i * kKeys + 16, Mul(acc[i][1], scale));
  }
}

// o[i] = o[i] * correction[i] + Σ_j p[i][j] v[j], j in [lo, hi), for MR rows × NV vectors.
// v: rows of float32 or bf16, `stride` bytes apart.
template <int MR, int NV, bool kBf16>
inline void ValueTile(const float* p, const char* v, int64_t stride, int64_t width, int64_t lo, int64_t hi,
                      const float* correction, float* o) {
  V acc[MR][NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    const V c = Set(correction[i]);
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) acc[i][n] = Mul(Load(o + i * width + n * 16), c);
  }
  for (int64_t j = lo; j < hi; ++j) {
    V x[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      const char* q = v + j * stride + n * (kBf16 ? 32 : 64);
      x[n] = kBf16 ? WidenBf16(q) : Load(reinterpret_cast<const float*>(q));
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const V w = Set(p[i * kKeys + j]);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n) acc[i][n] = Fma(w, x[n], acc[i][n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) Store(o + i * width + n * 16, acc[i][n]);
  }
}

template <int MR, bool kBf16>
inline void ValueRowsOf(const float* p, const char* v, int64_t stride, int64_t width, int64_t lo, int64_t hi,
                        const float* correction, float* o) {
  constexpr int64_t kSize = kBf16 ? 2 : 4;
  int64_t d = 0;
  for (; d + kValueVectors * 16 <= width; d += kValueVectors * 16) {
    ValueTile<MR, kValueVectors, kBf16>(p, v + d * kSize, stride, width, lo, hi, correction, o + d);
  }
  for (; d < width; d += 16) ValueTile<MR, 1, kBf16>(p, v + d * kSize, stride, width, lo, hi, correction, o + d);
}

// The values of a block: as they are in the cache, or widened to [32][width].
struct ValueBlock {
  const char* data;
  int64_t stride;
  bool bf16;
};

template <int MR>
inline void ValueRows(const float* p, const ValueBlock& v, int64_t width, int64_t lo, int64_t hi,
                      const float* correction, float* o) {
  if (v.bf16) {
    ValueRowsOf<MR, true>(p, v.data, v.stride, width, lo, hi, correction, o);
  } else {
    ValueRowsOf<MR, false>(p, v.data, v.stride, width, lo, hi, correction, o);
  }
}

// What one call works with, cut from AttentionTile::scratch.
struct AttentionState : RowSums {
  float *q, *kt, *v, *s, *top, *correction;
};

inline int64_t ScratchFloats(int64_t rows, int64_t head_dim, int64_t v_head_dim) {
  const int64_t width = RoundUp16(v_head_dim);
  return head_dim * kKeys + kKeys * width + rows * (kKeys + 2 * width + head_dim) + 6 * RoundUp16(rows) + 64;
}

inline AttentionState CutScratch(const AttentionTile& t) {
  AttentionState a{};
  a.rows = t.count * t.group;
  a.width = RoundUp16(t.v_head_dim);
  const int64_t padded_rows = RoundUp16(a.rows);
  float* p = t.scratch;
  auto take = [&p](int64_t n) {
    float* begin = p;
    p += n;
    return begin;
  };
  a.kt = take(t.head_dim * kKeys);
  a.v = take(kKeys * a.width);
  a.s = take(a.rows * kKeys);
  a.o = take(a.rows * a.width);
  a.total = take(a.rows * a.width);
  a.m = take(padded_rows);
  a.l = take(padded_rows);
  a.top = take(padded_rows);
  a.correction = take(padded_rows);
  a.total_m = take(padded_rows);
  a.total_l = take(padded_rows);
  a.q = take(a.rows * t.head_dim);
  return a;
}

inline void SoftmaxRows(const AttentionTile& t, AttentionState& a, int64_t block, int64_t begin, int64_t end) {
  const V lowest = Set(-__builtin_inff());
  for (int64_t r = begin; r < end; ++r) {
    const KeyRange keys = VisibleKeys(t, t.first_pos + r / t.group, block);
    float* s = a.s + r * kKeys;
    V s0 = Load(s);
    V s1 = Load(s + 16);
    if (t.logit_cap > 0) {
      s0 = SoftCap(s0, t.logit_cap);
      s1 = SoftCap(s1, t.logit_cap);
      if (t.score_scale != nullptr) {
        const V scale = Set(t.score_scale[r / t.group]);
        s0 = Mul(s0, scale);
        s1 = Mul(s1, scale);
      }
      Store(s, s0);
      Store(s + 16, s1);
    }
    if (keys.lo > 0 || keys.hi < kKeys) {
      s0 = KeepLanes(s0, keys.lo, keys.hi, lowest);
      s1 = KeepLanes(s1, keys.lo - 16, keys.hi - 16, lowest);
      Store(s, s0);
      Store(s + 16, s1);
    }
    const float max = MaxLane(Max(s0, s1));
    a.top[r] = max > a.m[r] ? max : a.m[r];
  }
  for (int64_t r = begin; r < end; r += 16) {
    const int64_t n = end - r < 16 ? end - r : 16;
    StoreUpTo16(a.correction + r, Exp(Sub(LoadUpTo16(a.m + r, n), LoadUpTo16(a.top + r, n))), n);
  }
  for (int64_t r = begin; r < end; ++r) {
    float* s = a.s + r * kKeys;
    const V top = Set(a.top[r]);
    const V p0 = Exp(Sub(Load(s), top));
    const V p1 = Exp(Sub(Load(s + 16), top));
    Store(s, p0);
    Store(s + 16, p1);
    a.l[r] = __builtin_fmaf(a.l[r], a.correction[r], Sum(Add(p0, p1)));
    a.m[r] = a.top[r];
  }
}

inline void AccumulateValues(const AttentionTile& t, AttentionState& a, const ValueBlock& v, int64_t block,
                             int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end;) {
    const KeyRange keys = VisibleKeys(t, t.first_pos + r / t.group, block);
    // Rows of one range go together: a row must never touch a key it does not see (0 · NaN is NaN).
    int64_t n = 1;
    while (n < kValueRows && r + n < end) {
      const KeyRange next = VisibleKeys(t, t.first_pos + (r + n) / t.group, block);
      if (next.lo != keys.lo || next.hi != keys.hi) break;
      ++n;
    }
    const float* p = a.s + r * kKeys;
    float* o = a.o + r * a.width;
    if (n == kValueRows) {
      ValueRows<kValueRows>(p, v, a.width, keys.lo, keys.hi, a.correction + r, o);
      r += n;
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      ValueRows<1>(p + i * kKeys, v, a.width, keys.lo, keys.hi, a.correction + r + i, o + i * a.width);
    }
    r += n;
  }
}

inline void AttendBlock(const AttentionTile& t, AttentionState& a, int64_t block) {
  const RowRange rows = RowsOfBlock(t, block);
  const auto [begin, end] = rows;
  if (begin == end) return;
  const int64_t physical = t.blocks[block];
  KeyBlock k{t.k + physical * t.k_block_bytes, t.act == Element::kBF16};
  if (k.bf16 && (end - begin > 2 * kScoreRows || t.v == nullptr)) {
    WidenKeys(k.data, t.head_dim, a.kt);
    k = {reinterpret_cast<const char*>(a.kt), false};
  }
  const V scale = Set(t.scale);
  int64_t r = begin;
  for (; r + kScoreRows <= end; r += kScoreRows) {
    ScoreTile<kScoreRows>(a.q + r * t.head_dim, t.head_dim, k, t.head_dim, scale, a.s + r * kKeys);
  }
  for (; r < end; ++r) ScoreTile<1>(a.q + r * t.head_dim, t.head_dim, k, t.head_dim, scale, a.s + r * kKeys);
  if (t.relative != nullptr) AddRelativeBias(t, a.s, kKeys, block, rows);
  SoftmaxRows(t, a, block, begin, end);

  if (t.v == nullptr) {
    ValuesOfKeys(reinterpret_cast<const float*>(k.data), t.v_head_dim, a.width, a.v);
    AccumulateValues(t, a, {reinterpret_cast<const char*>(a.v), a.width * 4, false}, block, begin, end);
    return;
  }
  ValueBlock v{t.v + physical * t.v_block_bytes, t.v_head_dim * ActSize(t), t.act == Element::kBF16};
  // Widening pays once several passes of rows share it, and gives whole vectors to any v_head_dim.
  if (t.v_head_dim % 16 != 0 || (v.bf16 && end - begin > 2 * kValueRows)) {
    const int64_t keys = VisibleKeys(t, t.first_pos + (end - 1) / t.group, block).hi;
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t d = 0; d < a.width; d += 16) {
        const int64_t n = t.v_head_dim - d;
        const char* row = v.data + j * v.stride;
        Store(a.v + j * a.width + d, n >= 16 ? LoadElement(t.act, row, d) : LoadElementN(t.act, row, d, n));
      }
    }
    v = {reinterpret_cast<const char*>(a.v), a.width * 4, false};
  }
  AccumulateValues(t, a, v, block, begin, end);
}

inline void Attend(const AttentionTile& t) {
  AttentionState a = CutScratch(t);
  for (int64_t r = 0; r < a.rows; ++r) {
    const char* q = t.q + r / t.group * t.q_row_bytes + r % t.group * t.head_dim * ActSize(t);
    for (int64_t d = 0; d < t.head_dim; d += 16) {
      const int64_t n = t.head_dim - d < 16 ? t.head_dim - d : 16;
      StoreUpTo16(a.q + r * t.head_dim + d, n == 16 ? LoadElement(t.act, q, d) : LoadElementN(t.act, q, d, n), n);
    }
  }
  ClearTotals(a);
  const int64_t end_block = (t.first_pos + t.count - 1) / kKeys + 1;
  for (int64_t split = t.split_begin; split < t.split_end; ++split) {
    for (int64_t r = 0; r < a.rows; ++r) {
      a.m[r] = -__builtin_inff();
      a.l[r] = 0;
    }
    for (int64_t i = 0; i < a.rows * a.width; i += 16) Store(a.o + i, Zero());
    const int64_t stop = (split + 1) * kAttentionSplit < end_block ? (split + 1) * kAttentionSplit : end_block;
    for (int64_t block = split * kAttentionSplit; block < stop; ++block) {
      if (block + 1 < end_block) {
        PrefetchKeys(t, block + 1);
        PrefetchValues(t, block + 1);
      }
      AttendBlock(t, a, block);
    }
    FinishSplit(t, a, split);
  }
  if (t.partials == nullptr) WriteRows(t, a);
}

inline void MergePartials(const AttentionTile& t) {
  AttentionState a = CutScratch(t);
  MergeSplits(t, a);
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
