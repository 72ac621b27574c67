// Mamba-1's selective scan. After math-inl.h.
//
// Order, per channel: h = fma(dt·x, B, exp(dt·A) · h) lane by lane, 16 of the state at a time; the sum of h·C is one
// FMA chain over those vectors, then the lanes as Sum() says; y = fma(D, x, sum) · silu(z).
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Positions [0, count) for up to 16 channels; n_state any size. `rate`: A of the channels, [channels, state_size].
inline void Mamba1Scan(const Mamba1Args& a) {
  const int64_t size = a.state_size;
  for (int64_t i = 0; i < a.channels * size; i += 16) {
    const int64_t n = a.channels * size - i < 16 ? a.channels * size - i : 16;
    StoreUpTo16(a.rate + i, Sub(Zero(), Exp(LoadUpTo16(a.a_log + i, n))), n);
  }
  for (int64_t t = 0; t < a.count; ++t) {
    const float* b = a.b + t * a.bc_stride;
    const float* c = a.c + t * a.bc_stride;
    for (int64_t first = 0; first < a.channels; first += 16) {
      const int64_t n = a.channels - first < 16 ? a.channels - first : 16;
      const V x = LoadUpTo16(a.x + t * a.x_stride + first, n);
      const V dt = Softplus(LoadUpTo16(a.dt + t * a.x_stride + first, n));
      float dts[16];
      float dtx[16];
      float sums[16];
      Store(dts, dt);
      Store(dtx, Mul(dt, x));
      Store(sums, Zero());
      for (int64_t d = 0; d < n; ++d) {
        float* state = a.state + (first + d) * size;
        const float* rate = a.rate + (first + d) * size;
        const V step = Set(dts[d]);
        const V in = Set(dtx[d]);
        V sum = Zero();
        for (int64_t s = 0; s < size; s += 16) {
          const int64_t lanes = size - s < 16 ? size - s : 16;
          const V keep = Exp(Mul(step, LoadUpTo16(rate + s, lanes)));
          const V h = Fma(in, LoadUpTo16(b + s, lanes), Mul(keep, LoadUpTo16(state + s, lanes)));
          StoreUpTo16(state + s, h, lanes);
          sum = Fma(h, LoadUpTo16(c + s, lanes), sum);
        }
        sums[d] = Sum(sum);
      }
      const V y = Fma(LoadUpTo16(a.d + first, n), x, Load(sums));
      StoreAct(a.act, a.out + t * a.out_row_bytes, first, Mul(y, Silu(LoadUpTo16(a.z + t * a.z_stride + first, n))), n);
    }
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
