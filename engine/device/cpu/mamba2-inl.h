// The parts of Mamba-2: selective scan, gated norm. After rows-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Positions scanned with a part of the state in registers before the next part: their B and C rows (2 × 128 floats each
// at state 128) then stay in L1.
inline constexpr int64_t kScanChunk = 16;

// PR rows of the state (channels p …) over positions [t0, t1), the state in registers: NV vectors a row.
//   h = fma(dt·x, B, decay·h);  y = Sum16(chain over the vectors of h·C, ascending) + d·x
template <int PR, int NV>
inline void ScanRows(const ScanArgs& a, int64_t p, int64_t t0, int64_t t1) {
  V h[PR][NV];
  float* state = a.state + p * a.state_size;
#pragma GCC unroll 8
  for (int i = 0; i < PR; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) h[i][v] = Load(state + i * a.state_size + v * 16);
  }
  for (int64_t t = t0; t < t1; ++t) {
    const float* b = a.b + t * a.x_stride;
    const float* c = a.c + t * a.x_stride;
    const V decay = Set(a.decay[t * a.dt_stride]);
    V sum[PR];
    V dx[PR];
#pragma GCC unroll 8
    for (int i = 0; i < PR; ++i) {
      sum[i] = Zero();
      dx[i] = Set(a.dt[t * a.dt_stride] * a.x[t * a.x_stride + p + i]);
    }
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      const V bv = Load(b + v * 16);
      const V cv = Load(c + v * 16);
#pragma GCC unroll 8
      for (int i = 0; i < PR; ++i) {
        h[i][v] = Fma(dx[i], bv, Mul(decay, h[i][v]));
        sum[i] = Fma(h[i][v], cv, sum[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < PR; ++i) {
      a.y[t * a.y_stride + p + i] = __builtin_fmaf(a.d, a.x[t * a.x_stride + p + i], Sum(sum[i]));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < PR; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) Store(state + i * a.state_size + v * 16, h[i][v]);
  }
}

// The same for a state of any size, kept in memory.
inline void ScanRowAny(const ScanArgs& a, int64_t p, int64_t t0, int64_t t1) {
  float* state = a.state + p * a.state_size;
  for (int64_t t = t0; t < t1; ++t) {
    const float x = a.x[t * a.x_stride + p];
    const V decay = Set(a.decay[t * a.dt_stride]);
    const V dx = Set(a.dt[t * a.dt_stride] * x);
    V sum = Zero();
    for (int64_t s = 0; s < a.state_size; s += 16) {
      const int64_t n = a.state_size - s < 16 ? a.state_size - s : 16;
      const V h = Fma(dx, LoadUpTo16(a.b + t * a.x_stride + s, n), Mul(decay, LoadUpTo16(state + s, n)));
      StoreUpTo16(state + s, h, n);
      sum = Fma(h, LoadUpTo16(a.c + t * a.x_stride + s, n), sum);
    }
    a.y[t * a.y_stride + p] = __builtin_fmaf(a.d, x, Sum(sum));
  }
}

template <int PR, int NV>
inline int64_t ScanAll(const ScanArgs& a, int64_t t0, int64_t t1) {
  int64_t p = 0;
  for (; p + PR <= a.head_dim; p += PR) ScanRows<PR, NV>(a, p, t0, t1);
  return p;
}

inline void Scan(const ScanArgs& a) {
  for (int64_t t0 = 0; t0 < a.count; t0 += kScanChunk) {
    const int64_t t1 = a.count - t0 < kScanChunk ? a.count : t0 + kScanChunk;
    int64_t p = 0;
    if (a.state_size == 128) p = ScanAll<2, 8>(a, t0, t1);
    if (a.state_size == 64) p = ScanAll<4, 4>(a, t0, t1);
    if (a.state_size == 32) p = ScanAll<4, 2>(a, t0, t1);
    if (a.state_size == 16) p = ScanAll<8, 1>(a, t0, t1);
    for (; p < a.head_dim; ++p) ScanRowAny(a, p, t0, t1);
  }
}

// y = y · silu(z), then RMS norm over the group.
inline void GatedNorm(const GatedNormArgs& a) {
  for (int64_t i = 0; i < a.dim; i += 16) {
    const int64_t n = a.dim - i < 16 ? a.dim - i : 16;
    StoreUpTo16(a.y + i, Mul(LoadUpTo16(a.y + i, n), Silu(LoadUpTo16(a.z + i, n))), n);
  }
  const V scale = Set(InverseRoot(SumSquares(a.y, a.dim, 0), a.dim, a.eps));
  for (int64_t i = 0; i < a.dim; i += 16) {
    const int64_t n = a.dim - i < 16 ? a.dim - i : 16;
    StoreAct(a.act, a.out, i, Mul(Mul(LoadUpTo16(a.y + i, n), scale), LoadUpTo16(a.weight + i, n)), n);
  }
}

inline void SoftplusDecay(const float* raw, const float* bias, const float* a_log, int64_t count, float lo, float hi,
                          float* dt, float* decay) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    V x = Softplus(Add(LoadUpTo16(raw + i, n), LoadUpTo16(bias + i, n)));
    x = Min(Set(hi), Max(Set(lo), x));
    StoreUpTo16(dt + i, x, n);
    StoreUpTo16(decay + i, Exp(Sub(Zero(), Mul(x, Exp(LoadUpTo16(a_log + i, n))))), n);
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
