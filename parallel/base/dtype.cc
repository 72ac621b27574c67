#include "parallel/base/dtype.h"

#include <cmath>

#include "parallel/base/check.h"

namespace moe {

const char* DTypeName(DType t) {
  switch (t) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF8E4M3:
      return "float8_e4m3fn";
    case DType::kF8E5M2:
      return "float8_e5m2";
    case DType::kF8E8M0:
      return "float8_e8m0";
    case DType::kF64:
      return "float64";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kI16:
      return "int16";
    case DType::kU16:
      return "uint16";
    case DType::kI32:
      return "int32";
    case DType::kU32:
      return "uint32";
    case DType::kI64:
      return "int64";
    case DType::kU64:
      return "uint64";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

float F16ToFloat(f16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
  const uint32_t exponent = (x >> 10) & 0x1fu;
  const uint32_t mantissa = x & 0x3ffu;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -value : value;
  }
  const uint32_t bits = exponent == 31 ? 0x7f800000u | (mantissa << 13) : ((exponent + 112) << 23) | (mantissa << 13);
  return std::bit_cast<float>(sign | bits);
}

float LoadFloat(DType t, const std::byte* p) {
  switch (t) {
    case DType::kF32: {
      float v;
      std::memcpy(&v, p, 4);
      return v;
    }
    case DType::kBF16: {
      bf16_t v;
      std::memcpy(&v, p, 2);
      return Bf16ToFloat(v);
    }
    case DType::kF16: {
      f16_t v;
      std::memcpy(&v, p, 2);
      return F16ToFloat(v);
    }
    case DType::kF64: {
      double v;
      std::memcpy(&v, p, 8);
      return static_cast<float>(v);
    }
    default:
      MOE_CHECK(false) << "LoadFloat of " << DTypeName(t);
      return 0;
  }
}

}  // namespace moe
