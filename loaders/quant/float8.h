// Small floats of quantised weights, widened exactly. OCP 8-bit and microscaling formats (MX v1.0).
#ifndef MOE_LOADERS_QUANT_FLOAT8_H_
#define MOE_LOADERS_QUANT_FLOAT8_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moe {

// E4M3 without infinities: sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f and 0xff are NaN.
inline float E4m3ToFloat(uint8_t code) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (int c = 0; c < 256; ++c) {
      const int exponent = (c >> 3) & 15;
      const int mantissa = c & 7;
      float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      if ((c & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
      values[static_cast<size_t>(c)] = (c & 0x80) != 0 ? -value : value;
    }
    return values;
  }();
  return table[code];
}

// E2M1, the four-bit float of MXFP4 and NVFP4. REQUIRES: code < 16.
inline float E2m1ToFloat(uint32_t code) {
  constexpr float kValues[] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues[code];
}

// E8M0, a scale of microscaling blocks: 2^(code - 127), NaN for 255.
inline float E8m0ToFloat(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

}  // namespace moe

#endif  // MOE_LOADERS_QUANT_FLOAT8_H_
