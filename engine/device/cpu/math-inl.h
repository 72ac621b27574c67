// Functions of 16 floats, the same bits on avx2 and avx512, whatever the number of rows. After vec16_*-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// e^x within 1 ulp where the result is normal: x = n ln 2 + r, |r| ≤ ½ ln 2, Taylor to r^7 (the next term is below
// 6e-9). -inf gives 0, above 88.73 inf, NaN stays NaN.
inline V Exp(V x) {
  x = Min(Set(89.0f), Max(Set(-104.0f), x));
  const V n = Round(Mul(x, Set(1.44269504088896341f)));
  V r = NegFma(n, Set(0.693145751953125f), x);  // the first 16 bits of ln 2: exact
  r = NegFma(n, Set(1.42860682030941723e-6f), r);
  V p = Set(1.98412698e-4f);
  p = Fma(p, r, Set(1.38888889e-3f));
  p = Fma(p, r, Set(8.33333333e-3f));
  p = Fma(p, r, Set(4.16666667e-2f));
  p = Fma(p, r, Set(1.66666667e-1f));
  p = Fma(p, r, Set(0.5f));
  p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
  return ScaleByPow2(p, n);
}

// log(1 + x) for x ≥ 0, within a few ulp: atanh series of the mantissa of u = 1 + x, corrected by the rounding of u.
inline V Log1p(V x) {
  const V u = Add(Set(1.0f), x);
  const V lost = Div(Sub(x, Sub(u, Set(1.0f))), u);
  V m;
  const V e = SplitExponent(u, &m);
  const V f = Sub(m, Set(1.0f));
  const V s = Div(f, Add(m, Set(1.0f)));
  const V s2 = Mul(s, s);
  V p = Set(0.1111111111f);
  p = Fma(p, s2, Set(0.1428571429f));
  p = Fma(p, s2, Set(0.2f));
  p = Fma(p, s2, Set(0.3333333333f));
  // log m = 2s + 2s·s²·p;  2s = f - s·f keeps the leading term exact.
  const V tail = Mul(s, Sub(Mul(Mul(Set(2.0f), s2), p), f));
  V log = Add(f, Add(tail, Fma(e, Set(1.42860682030941723e-6f), lost)));
  return Fma(e, Set(0.693145751953125f), log);
}

// Min keeps its second operand when one is NaN.
inline V Softplus(V x) {
  return SelectLess(Set(20.0f), x, x, Log1p(Exp(Min(Set(20.0f), x))));
}

inline V Sigmoid(V x) {
  return Div(Set(1.0f), Add(Set(1.0f), Exp(Sub(Zero(), x))));
}
inline V Silu(V x) {
  return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), x))));
}
// ½x(1 + tanh u) = x / (1 + e^(-2u))
inline V GeluTanh(V x) {
  const V cube = Mul(Mul(x, x), x);
  const V u = Mul(Set(-2.0f * 0.7978845608028654f), Fma(Set(0.044715f), cube, x));
  return Div(x, Add(Set(1.0f), Exp(u)));
}
// libm's erf lane by lane: exact enough, and no supported expert layer spends its time here.
inline V GeluErf(V x) {
  float lanes[16];
  Store(lanes, x);
  for (float& v : lanes) v = 0.5f * v * (1.0f + __builtin_erff(v * 0.7071067811865476f));
  return Load(lanes);
}
inline V Relu2(V x) {
  const V g = Max(x, Zero());
  return Mul(g, g);
}

inline V Activate(ActivationKind kind, V x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return Silu(x);
    case ActivationKind::kGeluTanh:
      return GeluTanh(x);
    case ActivationKind::kGeluErf:
      return GeluErf(x);
    case ActivationKind::kRelu2:
      return Relu2(x);
    case ActivationKind::kSwigluOai:
    case ActivationKind::kSwigluStep:
      break;  // with a gate only
  }
  return x;
}

inline V ClampTo(V x, V limit) {
  return Max(Sub(Zero(), limit), Min(limit, x));
}

// act(gate, up); limit 0: none.
inline V ActivateGated(ActivationKind kind, float limit, float alpha, V gate, V up) {
  const V most = Set(limit);
  if (kind == ActivationKind::kSwigluStep) return Mul(Min(most, Silu(gate)), ClampTo(up, most));
  if (limit > 0) {
    gate = Min(most, gate);
    up = ClampTo(up, most);
  }
  if (kind == ActivationKind::kSwigluOai) {
    return Mul(Mul(Add(up, Set(1.0f)), gate), Sigmoid(Mul(Set(alpha), gate)));
  }
  return Mul(Activate(kind, gate), up);
}

// cap * tanh(x / cap), as 1 - 2 / (1 + e^2u).
inline V SoftCap(V x, float cap) {
  const V u = Mul(x, Set(2.0f / cap));
  return Mul(Set(cap), Sub(Set(1.0f), Div(Set(2.0f), Add(Set(1.0f), Exp(u)))));
}

inline V LoadElement(Element element, const char* p, int64_t i) {
  switch (element) {
    case Element::kF32:
      return Load(reinterpret_cast<const float*>(p) + i);
    case Element::kBF16:
      return WidenBf16(p + i * 2);
    case Element::kF16:
      return WidenF16(p + i * 2);
  }
  return Zero();
}
inline V LoadElementN(Element element, const char* p, int64_t i, int64_t n) {
  switch (element) {
    case Element::kF32:
      return LoadN(reinterpret_cast<const float*>(p) + i, n);
    case Element::kBF16:
      return WidenBf16N(p + i * 2, n);
    case Element::kF16:
      return WidenF16N(p + i * 2, n);
  }
  return Zero();
}
// Elements i … i + n of an act row, n ≤ 16.
inline void StoreAct(Element act, char* p, int64_t i, V x, int64_t n) {
  if (act == Element::kF32) {
    if (n >= 16) {
      Store(reinterpret_cast<float*>(p) + i, x);
    } else {
      StoreN(reinterpret_cast<float*>(p) + i, x, n);
    }
  } else if (n >= 16) {
    StoreBf16(p + i * 2, x);
  } else {
    StoreBf16N(p + i * 2, x, n);
  }
}
inline V LoadUpTo16(const float* p, int64_t n) {
  return n >= 16 ? Load(p) : LoadN(p, n);
}
inline void StoreUpTo16(float* p, V x, int64_t n) {
  if (n >= 16) {
    Store(p, x);
  } else {
    StoreN(p, x, n);
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
