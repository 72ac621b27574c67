#include "parallel/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moe {
namespace {

// The nearest bfloat16 by search over the neighbours, ties to the even one.
bf16_t NearestBf16(float x) {
  const auto low = static_cast<bf16_t>(std::bit_cast<uint32_t>(x) >> 16);
  const auto high = static_cast<bf16_t>(low + 1);
  const double a = std::abs(static_cast<double>(x) - Bf16ToFloat(low));
  // One step past the largest finite value counts as 2^128, as IEEE 754 rounding does.
  const double next = (high & 0x7fff) == 0x7f80 ? std::copysign(std::ldexp(1.0, 128), x) : Bf16ToFloat(high);
  const double b = std::abs(next - static_cast<double>(x));
  if (a != b) return a < b ? low : high;
  return low % 2 == 0 ? low : high;
}

TEST(DType, Bf16RoundsToNearestEven) {
  uint32_t bits = 1;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const float x = std::bit_cast<float>(bits);
    if (std::isnan(x) || std::isinf(x)) continue;
    ASSERT_EQ(FloatToBf16(x), NearestBf16(x)) << bits;
  }
  for (uint32_t low : {0x3f800000u, 0x3f810000u, 0x80000000u, 0x00010000u}) {  // exact ties
    const float x = std::bit_cast<float>(low + 0x8000u);
    EXPECT_EQ(FloatToBf16(x), NearestBf16(x));
  }
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::infinity()))));
}

TEST(DType, EveryHalfIsExact) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<f16_t>(h);
    const int exponent = (h >> 10) & 31;
    const double mantissa = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    const float value = F16ToFloat(bits);
    if (exponent == 31) {
      EXPECT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value));
      continue;
    }
    const double expected =
        exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(value), expected) << h;
  }
}

}  // namespace
}  // namespace moe
