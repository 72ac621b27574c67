// What every attention kernel does beside its products: which keys a row sees, and what becomes of the sums of a split.
// After math-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

inline constexpr int64_t kKeys = kAttentionBlock;
inline constexpr int64_t kSplitKeys = kAttentionSplit * kKeys;

inline int64_t RoundUp16(int64_t n) {
  return (n + 15) & ~int64_t{15};
}

inline int64_t ActSize(const AttentionTile& t) {
  return t.act == Element::kF32 ? 4 : 2;
}

// The keys that the query at position `pos` sees among `count` from position `first` on: [lo, hi) of these, both in
// [0, count]; none if hi ≤ lo. Both ascend with pos.
struct KeyRange {
  int64_t lo, hi;
};
inline KeyRange VisibleOf(const AttentionTile& t, int64_t pos, int64_t first, int64_t count) {
  int64_t lo = t.window > 0 ? pos - t.window + 1 - first : 0;
  if (t.chunk > 0 && pos / t.chunk * t.chunk - first > lo) lo = pos / t.chunk * t.chunk - first;
  int64_t hi = pos + 1 - first;
  if (lo < 0) lo = 0;
  if (lo > count) lo = count;
  if (hi < 0) hi = 0;
  if (hi > count) hi = count;
  return {lo, hi};
}
inline KeyRange VisibleKeys(const AttentionTile& t, int64_t pos, int64_t block) {
  return VisibleOf(t, pos, block * kKeys, kKeys);
}

// The query rows that see a key of a block: a range, since rows ascend in position.
struct RowRange {
  int64_t begin, end;
};
inline RowRange RowsOfBlock(const AttentionTile& t, int64_t block) {
  int64_t first = 0;
  int64_t last = t.count;
  while (first < last) {
    const KeyRange keys = VisibleKeys(t, t.first_pos + first, block);
    if (keys.hi > keys.lo) break;
    ++first;
  }
  while (last > first) {
    const KeyRange keys = VisibleKeys(t, t.first_pos + last - 1, block);
    if (keys.hi > keys.lo) break;
    --last;
  }
  return {first * t.group, last * t.group};
}

// Adds to the scores of a block, s: [32] floats of each row, `stride` apart. The biases by distance are stored nearest
// last, so those of a block's ascending keys lie side by side.
inline void AddRelativeBias(const AttentionTile& t, float* scores, int64_t stride, int64_t block, RowRange rows) {
  const int64_t width = t.relative_extent + 2 * kKeys;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t farthest = t.first_pos + r / t.group - block * kKeys;
    if (farthest - (kKeys - 1) >= t.relative_extent) continue;
    const float* x = t.relative + r / t.group * t.relative_stride + r % t.group * t.relative_dim;
    const float* bias = t.relative_bias + kKeys + t.relative_extent - 1 - farthest;
    float* s = scores + r * stride;
    V s0 = Load(s);
    V s1 = Load(s + 16);
    for (int64_t d = 0; d < t.relative_dim; ++d, bias += width) {
      const V value = Set(x[d]);
      s0 = Fma(value, Load(bias), s0);
      s1 = Fma(value, Load(bias + 16), s1);
    }
    Store(s, s0);
    Store(s + 16, s1);
  }
}

// A block's keys and values are two pieces of a few KB, too short for the processor's own prefetcher to be of use.
inline void PrefetchKeys(const AttentionTile& t, int64_t block) {
  const char* k = t.k + t.blocks[block] * t.k_block_bytes;
  const int64_t bytes = kKeys * t.head_dim * ActSize(t);
  for (int64_t i = 0; i < bytes; i += 64) Prefetch(k + i);
}
inline void PrefetchValues(const AttentionTile& t, int64_t block) {
  if (t.v == nullptr) return;
  const char* v = t.v + t.blocks[block] * t.v_block_bytes;
  const int64_t bytes = kKeys * t.v_head_dim * ActSize(t);
  for (int64_t i = 0; i < bytes; i += 64) Prefetch(v + i);
}

// The sums of a split and those of the splits so far, of each query row.
struct RowSums {
  int64_t rows;      // positions × group, in this order
  int64_t width;     // v_head_dim rounded up to 16
  float *o, *m, *l;  // m, l: padded to 16
  float *total, *total_m, *total_l;
};

// Adds the sums of a split for up to 16 rows, m, l: [16], o: rows o_stride apart, to those of the splits before it. l =
// 0: the row saw no key of it.
inline void MergeRows(RowSums& a, int64_t row, int64_t count, const float* m, const float* l, const float* o,
                      int64_t o_stride) {
  float* total_m = a.total_m + row;
  float* total_l = a.total_l + row;
  const V top = Max(Load(m), Load(total_m));
  float keep[16];
  float add[16];
  float tops[16];
  Store(keep, Exp(Sub(Load(total_m), top)));
  Store(add, Exp(Sub(Load(m), top)));
  Store(tops, top);
  for (int64_t i = 0; i < count; ++i, o += o_stride) {
    if (l[i] == 0) continue;
    float* total = a.total + (row + i) * a.width;
    if (total_l[i] == 0) {
      total_m[i] = m[i];
      total_l[i] = l[i];
      for (int64_t d = 0; d < a.width; d += 16) Store(total + d, Load(o + d));
      continue;
    }
    total_l[i] = __builtin_fmaf(l[i], add[i], total_l[i] * keep[i]);
    total_m[i] = tops[i];
    const V x = Set(keep[i]);
    const V y = Set(add[i]);
    for (int64_t d = 0; d < a.width; d += 16) Store(total + d, Fma(Load(o + d), y, Mul(Load(total + d), x)));
  }
}

// One more key of logit `sink` and value 0.
inline void AddSink(float sink, float m, float& l, int64_t width, float* total) {
  const float top = m > sink ? m : sink;
  float pair[16] = {m - top, sink - top};
  Store(pair, Exp(Load(pair)));
  l = __builtin_fmaf(l, pair[0], pair[1]);
  const V a = Set(pair[0]);
  for (int64_t d = 0; d < width; d += 16) Store(total + d, Mul(Load(total + d), a));
}

inline void WriteRows(const AttentionTile& t, RowSums& a) {
  const int64_t out_head = t.v_head_dim * ActSize(t);
  for (int64_t r = 0; r < a.rows; ++r) {
    char* out = t.out + r / t.group * t.out_row_bytes + r % t.group * out_head;
    if (t.sinks != nullptr) AddSink(t.sinks[r % t.group], a.total_m[r], a.total_l[r], a.width, a.total + r * a.width);
    const V l = Set(a.total_l[r]);
    for (int64_t d = 0; d < t.v_head_dim; d += 16) {
      const int64_t n = t.v_head_dim - d < 16 ? t.v_head_dim - d : 16;
      StoreAct(t.act, out, d, Div(Load(a.total + r * a.width + d), l), n);
    }
  }
}

inline void ClearTotals(RowSums& a) {
  for (int64_t r = 0; r < a.rows; ++r) a.total_l[r] = 0;
}

// A partial: o [width], m, l, padding to 16.
inline int64_t PartialStride(const RowSums& a) {
  return a.width + 16;
}

// The sums of a split go to the totals or, one of several threads' splits, to its partials.
inline void FinishSplit(const AttentionTile& t, RowSums& a, int64_t split) {
  if (t.partials == nullptr) {
    for (int64_t r = 0; r < a.rows; r += 16) {
      MergeRows(a, r, a.rows - r < 16 ? a.rows - r : 16, a.m + r, a.l + r, a.o + r * a.width, a.width);
    }
    return;
  }
  float* p = t.partials + (split - t.split_begin) * a.rows * PartialStride(a);
  for (int64_t r = 0; r < a.rows; ++r, p += PartialStride(a)) {
    p[a.width] = a.m[r];
    p[a.width + 1] = a.l[r];
    if (a.l[r] == 0) continue;
    for (int64_t d = 0; d < a.width; d += 16) Store(p + d, Load(a.o + r * a.width + d));
  }
}

inline void MergeSplits(const AttentionTile& t, RowSums& a) {
  ClearTotals(a);
  const float* p = t.partials;
  for (int64_t split = t.split_begin; split < t.split_end; ++split) {
    for (int64_t r = 0; r < a.rows; r += 16) {
      const int64_t n = a.rows - r < 16 ? a.rows - r : 16;
      float m[16] = {};
      float l[16] = {};
      for (int64_t i = 0; i < n; ++i) {
        m[i] = p[i * PartialStride(a) + a.width];
        l[i] = p[i * PartialStride(a) + a.width + 1];
      }
      MergeRows(a, r, n, m, l, p, PartialStride(a));
      p += n * PartialStride(a);
    }
  }
  WriteRows(t, a);
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
