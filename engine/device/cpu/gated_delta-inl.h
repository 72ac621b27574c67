// The gated delta rule (GatedDeltaSpec). After rows-inl.h.
//
// Order, per value head and column j of its state M [k_dim, v_dim], whatever columns share the pass:
//   M_ij = a_i · M_ij
//   read = fma(k_i, M_ij, read) and asked = fma(q_i, M_ij, asked), each one chain over i from 0
//   d = (v_j - read) · beta;  M_ij = fma(k_i, d, M_ij);  o_j = fma(k·q, d, asked)
// so o = Mᵀq needs no second reading of the new state. In a scan the update of a position is made by the pass of the
// next one, while M is in registers anyway: one load and one store an element and position.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Columns of a pass in vectors: a scan keeps k_dim × 32 of the state (16 KB at k_dim 128) in L1; a single step takes
// rows of the state as they lie in memory, where both sums of their columns find registers.
#ifdef __AVX512F__
inline constexpr int kDeltaScan = kDeltaColumns / 16;
#else
inline constexpr int kDeltaScan = 1;
#endif
inline constexpr int kDeltaStep = 8;

// One position's vectors. `decay_step`: 1, or 0 where one decay serves all rows.
struct DeltaPosition {
  const float* q;
  const float* k;
  const float* decay;
  int64_t decay_step;
};

// Rows of NV vectors of the state, `stride` floats apart.
struct DeltaRows {
  float* data;
  int64_t stride;
};

// kPending: M still lacks the update k_before · dᵀ of the position before. kStore: `to` gets M as decayed here.
template <int NV, bool kPending, bool kStore>
inline void DeltaRead(const DeltaPosition& p, int64_t k_dim, DeltaRows from, DeltaRows to, const float* k_before,
                      const V (&d)[NV], V (&read)[NV], V (&asked)[NV]) {
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) read[v] = asked[v] = Zero();
  for (int64_t i = 0; i < k_dim; ++i) {
    const V decay = Set(p.decay[i * p.decay_step]);
    const V key = Set(p.k[i]);
    const V query = Set(p.q[i]);
    const V before = kPending ? Set(k_before[i]) : Zero();
    const float* m = from.data + i * from.stride;
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      V x = Load(m + v * 16);
      if (kPending) x = Fma(before, d[v], x);
      x = Mul(decay, x);
      if (kStore) Store(to.data + i * to.stride + v * 16, x);
      read[v] = Fma(key, x, read[v]);
      asked[v] = Fma(query, x, asked[v]);
    }
  }
}

#ifndef __AVX512F__
// The same for a whole row of columns where registers are few: two rows at a time, the sums in L1.
inline void DeltaReadRows(const DeltaPosition& p, int64_t k_dim, DeltaRows from, V (&read)[kDeltaStep],
                          V (&asked)[kDeltaStep]) {
  for (int v = 0; v < kDeltaStep; ++v) read[v] = asked[v] = Zero();
  int64_t i = 0;
  for (; i + 2 <= k_dim; i += 2) {
    const V decay0 = Set(p.decay[i * p.decay_step]);
    const V decay1 = Set(p.decay[(i + 1) * p.decay_step]);
    const V key0 = Set(p.k[i]);
    const V key1 = Set(p.k[i + 1]);
    const V query0 = Set(p.q[i]);
    const V query1 = Set(p.q[i + 1]);
    const float* m = from.data + i * from.stride;
    for (int v = 0; v < kDeltaStep; ++v) {
      const V x0 = Mul(decay0, Load(m + v * 16));
      const V x1 = Mul(decay1, Load(m + from.stride + v * 16));
      read[v] = Fma(key1, x1, Fma(key0, x0, read[v]));
      asked[v] = Fma(query1, x1, Fma(query0, x0, asked[v]));
    }
  }
  for (; i < k_dim; ++i) {
    for (int v = 0; v < kDeltaStep; ++v) {
      const V x = Mul(Set(p.decay[i * p.decay_step]), Load(from.data + i * from.stride + v * 16));
      read[v] = Fma(Set(p.k[i]), x, read[v]);
      asked[v] = Fma(Set(p.q[i]), x, asked[v]);
    }
  }
}
#endif

// to = from (decayed, if it is not yet) + k dᵀ.
template <int NV, bool kDecay>
inline void DeltaUpdate(const DeltaPosition& p, int64_t k_dim, DeltaRows from, DeltaRows to, const V (&d)[NV]) {
  for (int64_t i = 0; i < k_dim; ++i) {
    const V decay = Set(p.decay[i * p.decay_step]);
    const V key = Set(p.k[i]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      V x = Load(from.data + i * from.stride + v * 16);
      if (kDecay) x = Mul(decay, x);
      Store(to.data + i * to.stride + v * 16, Fma(key, d[v], x));
    }
  }
}

inline DeltaPosition DeltaAt(const DeltaArgs& a, int64_t t) {
  return {a.q + t * a.qk_stride, a.k + t * a.qk_stride, a.decay + t * a.decay_stride, a.decay_by_channel ? 1 : 0};
}

// d and the output of position t from what it read of the state; n valid lanes in each vector.
template <int NV>
inline void DeltaOutput(const DeltaArgs& a, int64_t t, int64_t column, int64_t n, const V (&read)[NV],
                        const V (&asked)[NV], V (&d)[NV]) {
  const V beta = Set(a.beta[t * a.beta_stride]);
  const V kq = Set(a.kq[t * a.kq_stride]);
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    d[v] = Mul(Sub(LoadUpTo16(a.v + t * a.v_stride + column + v * 16, n), read[v]), beta);
    StoreUpTo16(a.out + t * a.out_stride + column + v * 16, Fma(kq, d[v], asked[v]), n);
  }
}

// All positions for NV vectors of columns, in place of `state` (rows of whole vectors).
template <int NV>
inline void DeltaScan(const DeltaArgs& a, int64_t column, int64_t n, DeltaRows state) {
  const DeltaRows near{a.scratch, NV * 16};
  V d[NV] = {};
  V read[NV];
  V asked[NV];
  const float* k_before = nullptr;
  for (int64_t t = 0; t < a.count; ++t) {
    const DeltaPosition p = DeltaAt(a, t);
    if (t == 0) {
      DeltaRead<NV, false, true>(p, a.k_dim, state, near, nullptr, d, read, asked);
    } else {
      DeltaRead<NV, true, true>(p, a.k_dim, near, near, k_before, d, read, asked);
    }
    DeltaOutput<NV>(a, t, column, n, read, asked, d);
    k_before = p.k;
  }
  DeltaUpdate<NV, false>(DeltaAt(a, a.count - 1), a.k_dim, near, state, d);
}

// A single position: the state is read twice, the second time from L2, and written once.
template <int NV>
inline void DeltaStep(const DeltaArgs& a, int64_t column) {
  const DeltaPosition p = DeltaAt(a, 0);
  const DeltaRows state{a.state + column, a.state_stride};
  V d[NV] = {};
  V read[NV];
  V asked[NV];
#ifndef __AVX512F__
  if constexpr (NV == kDeltaStep) {
    DeltaReadRows(p, a.k_dim, state, read, asked);
  } else
#endif
    DeltaRead<NV, false, false>(p, a.k_dim, state, state, nullptr, d, read, asked);
  DeltaOutput<NV>(a, 0, column, 16, read, asked, d);
  DeltaUpdate<NV, true>(p, a.k_dim, state, state, d);
}

inline void GatedDelta(const DeltaArgs& a) {
  int64_t c = 0;
  if (a.count == 1) {
    for (; c + kDeltaStep * 16 <= a.columns; c += kDeltaStep * 16) DeltaStep<kDeltaStep>(a, c);
    for (; c + 32 <= a.columns; c += 32) DeltaStep<2>(a, c);
    if (c + 16 <= a.columns) {
      DeltaStep<1>(a, c);
      c += 16;
    }
  } else {
    for (; c + kDeltaScan * 16 <= a.columns; c += kDeltaScan * 16) {
      DeltaScan<kDeltaScan>(a, c, 16, {a.state + c, a.state_stride});
    }
    for (; c + 16 <= a.columns; c += 16) DeltaScan<1>(a, c, 16, {a.state + c, a.state_stride});
  }
  if (c == a.columns) return;
  // The last columns, padded to a vector.
  const int64_t n = a.columns - c;
  float* padded = a.scratch + a.k_dim * kDeltaColumns;
  for (int64_t i = 0; i < a.k_dim; ++i) Store(padded + i * 16, LoadN(a.state + i * a.state_stride + c, n));
  DeltaScan<1>(a, c, n, {padded, 16});
  for (int64_t i = 0; i < a.k_dim; ++i) StoreN(a.state + i * a.state_stride + c, Load(padded + i * 16), n);
}

// out = x / sqrt(Σ x² + eps) · scale
inline void L2NormalizeRow(const float* x, int64_t dim, float eps, float scale, float* out) {
  const V inverse = Set(1.0f / __builtin_sqrtf(SumSquares(x, dim, 0) + eps));
  const V s = Set(scale);
  for (int64_t i = 0; i < dim; i += 16) {
    const int64_t n = dim - i < 16 ? dim - i : 16;
    StoreUpTo16(out + i, Mul(Mul(LoadUpTo16(x + i, n), inverse), s), n);
  }
}

// q and k of a row and key head, and their product.
inline void DeltaHeads(const DeltaHeadArgs& a) {
  L2NormalizeRow(a.q, a.dim, a.eps, a.q_scale, a.q_out);
  L2NormalizeRow(a.k, a.dim, a.eps, 1.0f, a.k_out);
  *a.kq =
      SumRow(a.dim, [&](int64_t i, int64_t n) { return Mul(LoadUpTo16(a.q_out + i, n), LoadUpTo16(a.k_out + i, n)); });
}

// exp(-e^a_log · softplus(x + bias)), or exp(lower · sigmoid(e^a_log · (x + bias))); a_log: [n], or one for all.
inline void DeltaDecay(const DeltaDecayArgs& a) {
  for (int64_t i = 0; i < a.count; i += 16) {
    const int64_t n = a.count - i < 16 ? a.count - i : 16;
    const V rate = Exp(a.one_rate ? Set(a.a_log[0]) : LoadUpTo16(a.a_log + i, n));
    const V x = Add(LoadUpTo16(a.x + i, n), LoadUpTo16(a.bias + i, n));
    const V log = a.safe ? Mul(Set(a.lower_bound), Sigmoid(Mul(rate, x))) : Sub(Zero(), Mul(rate, Softplus(x)));
    StoreUpTo16(a.out + i, Exp(log), n);
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
