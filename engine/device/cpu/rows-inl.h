// Operations on single rows. Order of every sum over a row: vector i of 16 goes to accumulator i mod 4, then
// (a0 + a1) + (a2 + a3), then the lanes as Sum() says. After math-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Σ f(i) over vectors of 16 elements; f(i, n) returns the n valid lanes of elements i … i + n, zeros elsewhere.
template <class F>
inline float SumRow(int64_t dim, const F& f) {
  V acc[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 64 <= dim; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[j] = Add(acc[j], f(i + 16 * j, 16));
  }
  for (int j = 0; i < dim; i += 16, ++j) acc[j] = Add(acc[j], f(i, dim - i < 16 ? dim - i : 16));
  return Sum(Add(Add(acc[0], acc[1]), Add(acc[2], acc[3])));
}

inline float SumSquares(const float* x, int64_t dim, float mean) {
  const V m = Set(mean);
  return SumRow(dim, [&](int64_t i, int64_t n) {
    V d = Sub(LoadUpTo16(x + i, n), m);
    if (n < 16) d = KeepLanes(d, 0, n, Zero());
    return Mul(d, d);
  });
}

inline float InverseRoot(float sum, int64_t dim, float eps) {
  const float mean = sum / static_cast<float>(dim);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

inline void NormRow(const NormArgs& a) {
  float mean = 0;
  if (a.layer) {
    mean = SumRow(a.dim, [&](int64_t i, int64_t n) { return LoadUpTo16(a.x + i, n); }) / static_cast<float>(a.dim);
  }
  const V scale = Set(InverseRoot(SumSquares(a.x, a.dim, mean), a.dim, a.eps));
  const V m = Set(mean);
  for (int64_t i = 0; i < a.dim; i += 16) {
    const int64_t n = a.dim - i < 16 ? a.dim - i : 16;
    V y = Mul(Sub(LoadUpTo16(a.x + i, n), m), scale);
    if (a.weight != nullptr) {
      V w = LoadUpTo16(a.weight + i, n);
      if (a.weight_offset) w = Add(Set(1.0f), w);
      y = Mul(y, w);
    }
    if (a.bias != nullptr) y = Add(y, LoadUpTo16(a.bias + i, n));
    if (a.out_f32 != nullptr) StoreUpTo16(a.out_f32 + i, y, n);
    if (a.out_act != nullptr) StoreAct(a.act, a.out_act, i, y, n);
  }
}

inline void WidenRow(const char* x, Element element, int64_t count, float scale, float* out) {
  const V s = Set(scale);
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    const V v = n == 16 ? LoadElement(element, x, i) : LoadElementN(element, x, i, n);
    StoreUpTo16(out + i, Mul(v, s), n);
  }
}

inline void RoundRow(const float* x, int64_t count, char* out, Element act) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    StoreAct(act, out, i, LoadUpTo16(x + i, n), n);
  }
}

// One chain per element over the slots, ascending: r = fma(weight, slot, r) from 0, then r * scale.
inline void CombineRow(const CombineArgs& a) {
  for (int64_t i = 0; i < a.dim; i += 16) {
    const int64_t n = a.dim - i < 16 ? a.dim - i : 16;
    V r = Zero();
    for (int64_t s = 0; s < a.top_k; ++s) {
      const V x = n == 16 ? LoadElement(a.slot_element, a.slots[s], i) : LoadElementN(a.slot_element, a.slots[s], i, n);
      r = Fma(Set(a.weights == nullptr ? 1.0f : a.weights[s]), x, r);
    }
    r = Mul(r, Set(a.scale));
    if (a.bias != nullptr) r = Add(r, LoadUpTo16(a.bias + i, n));
    if (a.out_act != nullptr) {
      StoreAct(a.act, a.out_act, i, r, n);
    } else {
      StoreUpTo16(a.out_f32 + i, Add(LoadUpTo16(a.out_f32 + i, n), r), n);
    }
  }
}

inline void AddScaledRow(float* dst, const float* src, float scale, int64_t count) {
  const V s = Set(scale);
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    StoreUpTo16(dst + i, Fma(s, LoadUpTo16(src + i, n), LoadUpTo16(dst + i, n)), n);
  }
}

// A NaN loses against everything; a row of NaNs gives index 0. A row of -inf has Σ exp = count at max = -inf.
inline void RowStatsOf(const float* x, int64_t count, RowStats* stats) {
  const V lowest = Set(-__builtin_inff());
  V best[4] = {lowest, lowest, lowest, lowest};
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    V v = LoadUpTo16(x + i, n);
    if (n < 16) v = KeepLanes(v, 0, n, lowest);
    best[(i >> 4) & 3] = Max(v, best[(i >> 4) & 3]);
  }
  const float max = MaxLane(Max(Max(best[0], best[1]), Max(best[2], best[3])));
  const V top = Set(max);
  int64_t argmax = -1;
  for (int64_t i = 0; i < count && argmax < 0; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    const uint32_t equal = EqualBits(LoadUpTo16(x + i, n), top) & (n < 16 ? (1u << n) - 1 : 0xffffu);
    if (equal != 0) argmax = i + __builtin_ctz(equal);
  }
  stats->argmax = argmax < 0 ? 0 : argmax;
  stats->max = x[stats->argmax];
  stats->sum_exp = SumRow(count, [&](int64_t i, int64_t n) {
    const V e = Exp(Sub(LoadUpTo16(x + i, n), top));
    return n < 16 ? KeepLanes(e, 0, n, Zero()) : e;
  });
}

// out[i] = exp(x[i] - shift); the sum in the order of SumRow.
inline float ExpSumRow(const float* x, int64_t count, float shift, float* out) {
  const V s = Set(shift);
  return SumRow(count, [&](int64_t i, int64_t n) {
    V e = Exp(Sub(LoadUpTo16(x + i, n), s));
    if (n < 16) e = KeepLanes(e, 0, n, Zero());
    StoreUpTo16(out + i, e, n);
    return e;
  });
}

template <class F>
inline void MapRow(float* x, int64_t count, const F& f) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    StoreUpTo16(x + i, f(LoadUpTo16(x + i, n)), n);
  }
}
inline void DivideRow(float* x, int64_t count, float divisor) {
  MapRow(x, count, [d = Set(divisor)](V v) { return Div(v, d); });
}
inline void ScaleRow(float* x, int64_t count, float factor) {
  MapRow(x, count, [f = Set(factor)](V v) { return Mul(v, f); });
}
inline void ClampRow(float* x, int64_t count, float limit) {
  MapRow(x, count, [l = Set(limit)](V v) { return ClampTo(v, l); });
}
inline void SigmoidRow(float* x, int64_t count) {
  MapRow(x, count, [](V v) { return Sigmoid(v); });
}

inline void SiluRow(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    StoreUpTo16(out + i, Silu(LoadUpTo16(x + i, n)), n);
  }
}

// out = x · f(gate), rounded to act.
inline void GateRow(const float* x, const float* gate, int64_t count, bool silu, char* out, Element act) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t n = count - i < 16 ? count - i : 16;
    const V g = LoadUpTo16(gate + i, n);
    StoreAct(act, out, i, Mul(LoadUpTo16(x + i, n), silu ? Silu(g) : Sigmoid(g)), n);
  }
}

inline void GateInPlace(const GateArgs& a) {
  const V bias = Set(a.bias);
  const auto factor = [&](V gate) { return a.softplus ? Softplus(Add(gate, bias)) : Sigmoid(Add(gate, bias)); };
  V f = a.one_gate ? factor(Set(a.gate[0])) : Zero();
  for (int64_t i = 0; i < a.count; i += 16) {
    const int64_t n = a.count - i < 16 ? a.count - i : 16;
    if (!a.one_gate) f = factor(LoadUpTo16(a.gate + i, n));
    const V x = n == 16 ? LoadElement(a.act, a.x, i) : LoadElementN(a.act, a.x, i, n);
    StoreAct(a.act, a.x, i, Mul(x, f), n);
  }
}

// Rotates the first 2 * half elements of a head: pairs (i, i + half), or (2i, 2i + 1) where interleaved.
inline void RotateHead(float* head, int64_t half, bool interleaved, const float* cos, const float* sin) {
  if (interleaved) {
    for (int64_t i = 0; i < half; ++i) {
      const float x = head[2 * i];
      const float y = head[2 * i + 1];
      head[2 * i] = __builtin_fmaf(-y, sin[i], x * cos[i]);
      head[2 * i + 1] = __builtin_fmaf(x, sin[i], y * cos[i]);
    }
    return;
  }
  for (int64_t i = 0; i < half; i += 16) {
    const int64_t n = half - i < 16 ? half - i : 16;
    const V x = LoadUpTo16(head + i, n);
    const V y = LoadUpTo16(head + half + i, n);
    const V c = LoadUpTo16(cos + i, n);
    const V s = LoadUpTo16(sin + i, n);
    StoreUpTo16(head + i, NegFma(y, s, Mul(x, c)), n);
    StoreUpTo16(head + half + i, Fma(x, s, Mul(y, c)), n);
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
