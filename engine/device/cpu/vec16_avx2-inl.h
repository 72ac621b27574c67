// Vectors of 16 floats on AVX2 + FMA + F16C, as two registers. Include inside a kernel file only, with MOE_CPU_NS
// defined. The same names with the same arithmetic, lane by lane, as vec16_avx512-inl.h.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace moe::cpu::MOE_CPU_NS {
namespace {

struct V {
  __m256 lo, hi;
};

// All ones in the first n of 8 lanes (n may be below 0 or above 8).
inline __m256i FirstLanes8(int64_t n) {
  const int count = n < 0 ? 0 : (n > 8 ? 8 : static_cast<int>(n));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V Zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline V Set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline V Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline V LoadN(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, FirstLanes8(n)), _mm256_maskload_ps(p + 8, FirstLanes8(n - 8))};
}
inline void Store(float* p, V x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline void StoreN(float* p, V x, int64_t n) {
  _mm256_maskstore_ps(p, FirstLanes8(n), x.lo);
  _mm256_maskstore_ps(p + 8, FirstLanes8(n - 8), x.hi);
}
inline V GatherN(const float* p, int64_t stride, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i * stride];
  return Load(lanes);
}
inline V Add(V a, V b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline V Sub(V a, V b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline V Mul(V a, V b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline V Div(V a, V b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline V Fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V NegFma(V a, V b, V c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline V Max(V a, V b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline V Min(V a, V b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline V Sqrt(V a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
inline V Abs(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline V CopySign(V magnitude, V sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  const V m = Abs(magnitude);
  return {_mm256_or_ps(m.lo, _mm256_and_ps(sign.lo, bit)), _mm256_or_ps(m.hi, _mm256_and_ps(sign.hi, bit))};
}
inline V Round(V a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline __m256 ScaleByPow2Half(__m256 x, __m256 n) {
  const __m256i i = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(i, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}
inline V ScaleByPow2(V x, V n) {
  return {ScaleByPow2Half(x.lo, n.lo), ScaleByPow2Half(x.hi, n.hi)};
}
inline __m256 SplitExponentHalf(__m256 x, __m256* mantissa) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  *mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
  return _mm256_cvtepi32_ps(e);
}
inline V SplitExponent(V x, V* mantissa) {
  return {SplitExponentHalf(x.lo, &mantissa->lo), SplitExponentHalf(x.hi, &mantissa->hi)};
}
inline V SelectLess(V a, V b, V x, V y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline uint32_t EqualBits(V a, V b) {
  const auto lo = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)));
  const auto hi = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)));
  return lo | (hi << 8);
}
inline V KeepLanes(V x, int64_t lo, int64_t hi, V fill) {
  const __m256i keep_lo = _mm256_andnot_si256(FirstLanes8(lo), FirstLanes8(hi));
  const __m256i keep_hi = _mm256_andnot_si256(FirstLanes8(lo - 8), FirstLanes8(hi - 8));
  return {_mm256_blendv_ps(fill.lo, x.lo, _mm256_castsi256_ps(keep_lo)),
          _mm256_blendv_ps(fill.hi, x.hi, _mm256_castsi256_ps(keep_hi))};
}

inline void Transpose8(__m256 (&x)[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  // Then 128 bits L of vector i + c hold lanes 4L + c of vectors i … i + 3.
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m256 low = _mm256_permute2f128_ps(x[c], x[4 + c], 0x20);
    x[4 + c] = _mm256_permute2f128_ps(x[c], x[4 + c], 0x31);
    x[c] = low;
  }
}
inline void Transpose(V (&x)[16]) {
  __m256 quarter[8];
  __m256 across[8];
  for (int i = 0; i < 8; ++i) quarter[i] = x[i].lo;
  Transpose8(quarter);
  for (int i = 0; i < 8; ++i) x[i].lo = quarter[i];
  for (int i = 0; i < 8; ++i) quarter[i] = x[8 + i].hi;
  Transpose8(quarter);
  for (int i = 0; i < 8; ++i) x[8 + i].hi = quarter[i];
  for (int i = 0; i < 8; ++i) quarter[i] = x[i].hi;
  for (int i = 0; i < 8; ++i) across[i] = x[8 + i].lo;
  Transpose8(quarter);
  Transpose8(across);
  for (int i = 0; i < 8; ++i) x[8 + i].lo = quarter[i];
  for (int i = 0; i < 8; ++i) x[i].hi = across[i];
}

inline float Sum(V v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float MaxLane(V v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline __m256 WidenBf16Half(const void* p) {
  const __m128i h = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline V WidenBf16(const void* p) {
  return {WidenBf16Half(p), WidenBf16Half(static_cast<const char*>(p) + 16)};
}
inline V WidenBf16N(const void* p, int64_t n) {
  uint16_t lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * 2);
  return WidenBf16(lanes);
}
inline V WidenF16(const void* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p) + 1))};
}
inline V WidenF16N(const void* p, int64_t n) {
  uint16_t lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * 2);
  return WidenF16(lanes);
}
inline __m256 EvenBf16Half(__m256 pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
inline V EvenBf16(V pairs) {
  return {EvenBf16Half(pairs.lo), EvenBf16Half(pairs.hi)};
}
inline V OddBf16(V pairs) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(-65536));
  return {_mm256_and_ps(pairs.lo, mask), _mm256_and_ps(pairs.hi, mask)};
}
inline __m256 RoundToBf16Half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
  return _mm256_and_ps(chosen, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
}
inline V RoundToBf16(V x) {
  return {RoundToBf16Half(x.lo), RoundToBf16Half(x.hi)};
}
inline void StoreBf16(void* p, V x) {
  const V r = RoundToBf16(x);
  const __m256i lo = _mm256_srli_epi32(_mm256_castps_si256(r.lo), 16);
  const __m256i hi = _mm256_srli_epi32(_mm256_castps_si256(r.hi), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  _mm256_storeu_si256(static_cast<__m256i*>(p), packed);
}
inline void StoreBf16N(void* p, V x, int64_t n) {
  uint16_t lanes[16];
  StoreBf16(lanes, x);
  memcpy(p, lanes, static_cast<size_t>(n) * 2);
}
// Into L2. As asm: GCC takes a function of nothing but a prefetch for one without effects and drops its calls.
inline void Prefetch(const char* p) {
  asm volatile("prefetcht1 %0" ::"m"(*p));
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
