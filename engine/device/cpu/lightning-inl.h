// Lightning attention (LightningSpec). After math-inl.h.
//
// Order, per head and column j of its state M [dim, dim], whatever shares the pass:
//   M_ij = fma(k_i, v_j, r · M_ij);  o_j = fma(q_i, M_ij, o_j), one chain over i from 0
// Nothing a position computes is needed by the next but M itself, so a scan takes a few rows of M through many
// positions in registers; the chains of o wait in memory from row to row.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Positions of a pass: their q, k, v and o rows of a head stay in L1.
inline constexpr int64_t kLightningChunk = 16;
#ifdef __AVX512F__
inline constexpr int kLightningRows = 4;
inline constexpr int kLightningVectors = 4;
#else
inline constexpr int kLightningRows = 4;
inline constexpr int kLightningVectors = 1;
#endif
inline constexpr int kLightningStep = 8;

// Rows i … i + PR of NV vectors of columns from `column` on, through positions [t0, t1); `lanes` valid lanes a vector
// unless kFull.
template <int PR, int NV, bool kFull>
inline void LightningTile(const LightningArgs& a, int64_t i, int64_t column, int64_t lanes, int64_t t0, int64_t t1) {
  const int64_t n = kFull ? 16 : lanes;
  V m[PR][NV];
  float* state = a.state + i * a.dim + column;
#pragma GCC unroll 4
  for (int r = 0; r < PR; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) m[r][v] = LoadUpTo16(state + r * a.dim + v * 16, n);
  }
  const V keep = Set(a.keep);
  for (int64_t t = t0; t < t1; ++t) {
    const float* q = a.q + t * a.stride + i;
    const float* k = a.k + t * a.stride + i;
    float* out = a.out + t * a.out_stride + column;
    V value[NV];
    V sum[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      value[v] = LoadUpTo16(a.v + t * a.stride + column + v * 16, n);
      sum[v] = i == 0 ? Zero() : LoadUpTo16(out + v * 16, n);
    }
#pragma GCC unroll 4
    for (int r = 0; r < PR; ++r) {
      const V key = Set(k[r]);
      const V query = Set(q[r]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        m[r][v] = Fma(key, value[v], Mul(keep, m[r][v]));
        sum[v] = Fma(query, m[r][v], sum[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) StoreUpTo16(out + v * 16, sum[v], n);
  }
#pragma GCC unroll 4
  for (int r = 0; r < PR; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) StoreUpTo16(state + r * a.dim + v * 16, m[r][v], n);
  }
}

template <int PR, int NV, bool kFull>
inline void LightningColumns(const LightningArgs& a, int64_t column, int64_t lanes, int64_t t0, int64_t t1) {
  int64_t i = 0;
  for (; i + PR <= a.dim; i += PR) LightningTile<PR, NV, kFull>(a, i, column, lanes, t0, t1);
  for (; i < a.dim; ++i) LightningTile<1, NV, kFull>(a, i, column, lanes, t0, t1);
}

// One position: rows of the state as they lie in memory, two at a time; the sums in registers or, if those are few, L1.
template <int NV>
inline void LightningStep(const LightningArgs& a, int64_t column) {
  V value[NV];
  V sum[NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    value[v] = Load(a.v + column + v * 16);
    sum[v] = Zero();
  }
  const V keep = Set(a.keep);
  int64_t i = 0;
  for (; i + 2 <= a.dim; i += 2) {
    float* m = a.state + i * a.dim + column;
    const V key0 = Set(a.k[i]);
    const V key1 = Set(a.k[i + 1]);
    const V query0 = Set(a.q[i]);
    const V query1 = Set(a.q[i + 1]);
#ifdef __AVX512F__
#pragma GCC unroll 8
#endif
    for (int v = 0; v < NV; ++v) {
      const V x0 = Fma(key0, value[v], Mul(keep, Load(m + v * 16)));
      const V x1 = Fma(key1, value[v], Mul(keep, Load(m + a.dim + v * 16)));
      Store(m + v * 16, x0);
      Store(m + a.dim + v * 16, x1);
      sum[v] = Fma(query1, x1, Fma(query0, x0, sum[v]));
    }
  }
  for (; i < a.dim; ++i) {
    float* m = a.state + i * a.dim + column;
    for (int v = 0; v < NV; ++v) {
      const V x = Fma(Set(a.k[i]), value[v], Mul(keep, Load(m + v * 16)));
      Store(m + v * 16, x);
      sum[v] = Fma(Set(a.q[i]), x, sum[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) Store(a.out + column + v * 16, sum[v]);
}

inline void Lightning(const LightningArgs& a) {
  const int64_t end = a.column + a.columns;
  if (a.count == 1) {
    int64_t c = a.column;
    for (; c + kLightningStep * 16 <= end; c += kLightningStep * 16) LightningStep<kLightningStep>(a, c);
    for (; c + 16 <= end; c += 16) LightningStep<1>(a, c);
    if (c < end) LightningColumns<1, 1, false>(a, c, end - c, 0, 1);
    return;
  }
  for (int64_t t0 = 0; t0 < a.count; t0 += kLightningChunk) {
    const int64_t t1 = a.count - t0 < kLightningChunk ? a.count : t0 + kLightningChunk;
    int64_t c = a.column;
    for (; c + kLightningVectors * 16 <= end; c += kLightningVectors * 16) {
      LightningColumns<kLightningRows, kLightningVectors, true>(a, c, 16, t0, t1);
    }
    for (; c + 16 <= end; c += 16) LightningColumns<kLightningRows, 1, true>(a, c, 16, t0, t1);
    if (c < end) LightningColumns<kLightningRows, 1, false>(a, c, end - c, t0, t1);
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
