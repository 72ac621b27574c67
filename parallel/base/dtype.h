// Element types of stored tensors and activations, and exact conversions between them.
#ifndef MOE_PARALLEL_BASE_DTYPE_H_
#define MOE_PARALLEL_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moe {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF64,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBool,
};

// Bytes of one element.
constexpr size_t DTypeSize(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    default:
      return 1;
  }
}

// "float32", "bfloat16" …: the name config.json and our flags use.
const char* DTypeName(DType t);

using bf16_t = uint16_t;  // bit patterns
using f16_t = uint16_t;

inline float Bf16ToFloat(bf16_t x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

// Round to nearest, ties to even; NaN stays NaN (quietened).
inline bf16_t FloatToBf16(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<bf16_t>(bits >> 16);
}

// Exact for every half, subnormals included.
float F16ToFloat(f16_t x);

// One element at `p`, widened to float. Only floating types: kF32, kBF16, kF16, kF64.
float LoadFloat(DType t, const std::byte* p);

// Whether `t` holds whole numbers that LoadWhole reads: kI64 or kI32.
inline bool IsWholeDType(DType t) {
  return t == DType::kI64 || t == DType::kI32;
}
inline int64_t LoadWhole(DType t, const std::byte* p) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (t == DType::kI64) {
    std::memcpy(&wide, p, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, p, sizeof(narrow));
  return narrow;
}

}  // namespace moe

#endif  // MOE_PARALLEL_BASE_DTYPE_H_
