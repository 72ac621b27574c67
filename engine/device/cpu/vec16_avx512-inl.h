// Vectors of 16 floats on AVX-512 (F, BW, DQ, VL). Include inside a kernel file only, with MOE_CPU_NS defined.
// The same names with the same arithmetic, lane by lane, are in vec16_avx2-inl.h.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace moe::cpu::MOE_CPU_NS {
namespace {

using V = __m512;

inline __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
inline V Zero() {
  return _mm512_setzero_ps();
}
inline V Set(float x) {
  return _mm512_set1_ps(x);
}
inline V SetBits(uint32_t x) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(x)));
}
inline V Load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline V LoadN(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
inline void Store(float* p, V x) {
  _mm512_storeu_ps(p, x);
}
inline void StoreN(float* p, V x, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), x);
}
// Lanes p[0], p[stride], …; n lanes, the others zero.
inline V GatherN(const float* p, int64_t stride, int64_t n) {
  const __m512i step = _mm512_set1_epi32(static_cast<int>(stride));
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_mask_i32gather_ps(Zero(), FirstLanes(n), _mm512_mullo_epi32(step, lane), p, 4);
}
inline V Add(V a, V b) {
  return _mm512_add_ps(a, b);
}
inline V Sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
inline V Mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
inline V Div(V a, V b) {
  return _mm512_div_ps(a, b);
}
inline V Fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
// c - a·b
inline V NegFma(V a, V b, V c) {
  return _mm512_fnmadd_ps(a, b, c);
}
// b where either is NaN.
inline V Max(V a, V b) {
  return _mm512_max_ps(a, b);
}
inline V Min(V a, V b) {
  return _mm512_min_ps(a, b);
}
inline V Sqrt(V a) {
  return _mm512_sqrt_ps(a);
}
inline V Abs(V a) {
  return _mm512_abs_ps(a);
}
inline V CopySign(V magnitude, V sign) {
  return _mm512_or_ps(_mm512_abs_ps(magnitude), _mm512_and_ps(sign, SetBits(0x80000000u)));
}
inline V Round(V a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x · 2^n for an integral n in [-252, 254], rounded once.
inline V ScaleByPow2(V x, V n) {
  return _mm512_scalef_ps(x, n);
}
// Splits a positive normal x into mantissa in [√½, √2) and exponent.
inline V SplitExponent(V x, V* mantissa) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
  *mantissa = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23)));
  return _mm512_cvtepi32_ps(e);
}
// a < b ? x : y, lane by lane.
inline V SelectLess(V a, V b, V x, V y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
// Bit i: a[i] == b[i].
inline uint32_t EqualBits(V a, V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
// x in lanes [lo, hi), fill elsewhere.
inline V KeepLanes(V x, int64_t lo, int64_t hi, V fill) {
  if (lo < 0) lo = 0;
  if (hi > 16) hi = 16;
  if (hi <= lo) return fill;
  return _mm512_mask_blend_ps(static_cast<__mmask16>(FirstLanes(hi) & ~FirstLanes(lo)), fill, x);
}

// Lane j of vector i and lane i of vector j change places.
inline void Transpose(V (&x)[16]) {
  V t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  // Then 128 bits L of vector i + c hold lanes 4L + c of vectors i … i + 3.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]);
    const __m512d b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]);
    const __m512d d = _mm512_castps_pd(t[i + 3]);
    x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const V even0 = _mm512_shuffle_f32x4(x[c], x[4 + c], 0x88);
    const V even1 = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0x88);
    const V odd0 = _mm512_shuffle_f32x4(x[c], x[4 + c], 0xdd);
    const V odd1 = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0xdd);
    x[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
    x[4 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    x[8 + c] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    x[12 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
}

// ((l0+l8)+(l4+l12)) + … : halves folded three times, then the last two lanes.
inline float Sum(V v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float MaxLane(V v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline V WidenBf16(const void* p) {
  const __m256i h = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline V WidenBf16N(const void* p, int64_t n) {
  const __m256i h = _mm256_maskz_loadu_epi16(FirstLanes(n), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline V WidenF16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline V WidenF16N(const void* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
}
// Of 16 pairs of bf16: the even (low) elements and the odd (high) ones.
inline V EvenBf16(V pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
inline V OddBf16(V pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}
// Nearest even, in the upper half of each lane; NaN stays NaN. The low half is zero.
inline V RoundToBf16(V x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-65536)));
}
inline __m256i NarrowBf16(V x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(RoundToBf16(x)), 16));
}
inline void StoreBf16(void* p, V x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), NarrowBf16(x));
}
inline void StoreBf16N(void* p, V x, int64_t n) {
  _mm256_mask_storeu_epi16(p, FirstLanes(n), NarrowBf16(x));
}
// Into L2. As asm: GCC takes a function of nothing but a prefetch for one without effects and drops its calls.
inline void Prefetch(const char* p) {
  asm volatile("prefetcht1 %0" ::"m"(*p));
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
