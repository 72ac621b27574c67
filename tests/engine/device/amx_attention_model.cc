#include "tests/engine/device/amx_attention_model.h"

#define MOE_CPU_NS amx_model
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/attention_rows-inl.h"
#include "engine/device/cpu/attention_bf16-inl.h"
#include "engine/device/cpu/attention_amx-inl.h"
// clang-format on

namespace moe::cpu {
namespace amx_model {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 16;

struct Tile {
  int rows;
  uint32_t units[kRows][kColumns];  // float32, or pairs of bf16
};
thread_local Tile tiles[8];

inline float Flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
inline float AsFloat(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
inline float Even(uint32_t pair) {
  return Flush(AsFloat(pair << 16));
}
inline float Odd(uint32_t pair) {
  return Flush(AsFloat(pair & 0xffff0000u));
}

// As AmxTiles. Rows that a tile does not have read as zeros (TDPBF16PS faults on operands that do not fit together).
struct ModelTiles {
  static void Configure(const uint8_t (&rows)[8]) {
    memset(tiles, 0, sizeof(tiles));
    for (int i = 0; i < 8; ++i) tiles[i].rows = rows[i];
  }
  static void Release() { memset(tiles, 0, sizeof(tiles)); }

  template <int kTile>
  static void Load(const void* p, int64_t stride) {
    memset(tiles[kTile].units, 0, sizeof(tiles[kTile].units));
    for (int i = 0; i < tiles[kTile].rows; ++i) {
      memcpy(tiles[kTile].units[i], static_cast<const char*>(p) + i * stride, 64);
    }
  }
  template <int kTile>
  static void Store(void* p, int64_t stride) {
    for (int i = 0; i < tiles[kTile].rows; ++i) memcpy(static_cast<char*>(p) + i * stride, tiles[kTile].units[i], 64);
  }
  template <int kTile>
  static void Zero() {
    memset(tiles[kTile].units, 0, sizeof(tiles[kTile].units));
  }
  template <int kSums, int kA, int kB>
  static void Product() {
    const Tile& a = tiles[kA];
    const Tile& b = tiles[kB];
    if (tiles[kSums].rows != a.rows || b.rows != kRows) __builtin_trap();
    for (int m = 0; m < a.rows; ++m) {
      float even[kColumns] = {};
      float odd[kColumns] = {};
      for (int k = 0; k < kRows; ++k) {
        const float a_even = Even(a.units[m][k]);
        const float a_odd = Odd(a.units[m][k]);
        for (int n = 0; n < kColumns; ++n) {
          even[n] = Flush(__builtin_fmaf(a_even, Even(b.units[k][n]), even[n]));
          odd[n] = Flush(__builtin_fmaf(a_odd, Odd(b.units[k][n]), odd[n]));
        }
      }
      for (int n = 0; n < kColumns; ++n) {
        const float sum = Flush(AsFloat(tiles[kSums].units[m][n]) + Flush(even[n] + odd[n]));
        memcpy(&tiles[kSums].units[m][n], &sum, sizeof(sum));
      }
    }
  }
};

}  // namespace
}  // namespace amx_model
}  // namespace moe::cpu

namespace moe::device_test {

cpu::AttentionKernels AmxModelAttention() {
  using namespace cpu::amx_model;
  return {AttendBf16<AmxProducts<ModelTiles>>, MergeBf16Partials, Bf16ScratchFloats};
}

}  // namespace moe::device_test
