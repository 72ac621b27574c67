// What the tests of the backends share: the paths this machine can run, inputs, and comparisons that say where.
#ifndef MOE_TESTS_ENGINE_DEVICE_DEVICE_TEST_UTIL_H_
#define MOE_TESTS_ENGINE_DEVICE_DEVICE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/device/backend.h"

namespace moe::device_test {

// Half the distance of 1 to the next float32, bfloat16: the largest relative error of one rounding.
inline constexpr double kU = 0x1p-24;
inline constexpr double kUBf16 = 0x1p-8;

// The instruction sets this machine has.
std::vector<CpuIsa> AvailableIsas();
std::unique_ptr<Backend> MakeCpu(CpuIsa isa, DType act, WorkerPool* pool);

// Values in `dtype`, with the exact floats they stand for.
struct Values {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;
  std::vector<float> floats;
  int64_t size() const { return static_cast<int64_t>(floats.size()); }
  const std::byte* at(int64_t i) const { return bytes.data() + i * static_cast<int64_t>(DTypeSize(dtype)); }
};
// Rounds to `dtype` (kF32, kBF16, kF16).
Values ToValues(DType dtype, const std::vector<float>& x);
std::vector<float> ToFloats(DType dtype, const std::vector<std::byte>& bytes);

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  // Normal, standard deviation `scale`.
  std::vector<float> Floats(int64_t n, float scale = 1.0f);
  Values Make(DType dtype, int64_t n, float scale = 1.0f) { return ToValues(dtype, Floats(n, scale)); }
  int64_t Int(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint32_t>(n)); }

 private:
  std::mt19937 engine_;
};

WeightSource Source(const Values& v, int64_t rows, int64_t cols);
RowsView View(const Values& v, int64_t rows, int64_t cols);

// |got - want| ≤ bound for each element; NaN only where both are. Reports the first failures with row and column.
void ExpectNear(const std::string& what, const std::vector<float>& got, const std::vector<float>& want,
                const std::vector<double>& bound, int64_t cols);
// Bit by bit.
void ExpectSameBits(const std::string& what, const std::vector<float>& got, const std::vector<float>& want,
                    int64_t cols);

}  // namespace moe::device_test

#endif  // MOE_TESTS_ENGINE_DEVICE_DEVICE_TEST_UTIL_H_
