#include "tests/engine/device/device_test_util.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace moe::device_test {

std::vector<CpuIsa> AvailableIsas() {
  std::vector<CpuIsa> isas;
  for (CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (CpuIsaAvailable(isa)) isas.push_back(isa);
  }
  return isas;
}

std::unique_ptr<Backend> MakeCpu(CpuIsa isa, DType act, WorkerPool* pool) {
  auto backend = CreateCpuBackend(CpuIsaName(isa), act, pool);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(backend).value();
}

namespace {

// Nearest even; the inputs of these tests are in the normal range of a half or zero.
uint16_t ToF16(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // [½, 1)
  const auto mantissa = static_cast<int>(std::nearbyint(fraction * 2048.0));
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) + (mantissa - 1024));
}

}  // namespace

Values ToValues(DType dtype, const std::vector<float>& x) {
  Values v;
  v.dtype = dtype;
  const size_t size = DTypeSize(dtype);
  v.bytes.resize(x.size() * size);
  v.floats.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    std::byte* p = v.bytes.data() + i * size;
    if (dtype == DType::kF32) {
      std::memcpy(p, &x[i], 4);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? FloatToBf16(x[i]) : ToF16(x[i]);
      std::memcpy(p, &bits, 2);
    }
    v.floats[i] = LoadFloat(dtype, p);
  }
  return v;
}

std::vector<float> ToFloats(DType dtype, const std::vector<std::byte>& bytes) {
  const size_t size = DTypeSize(dtype);
  std::vector<float> out(bytes.size() / size);
  for (size_t i = 0; i < out.size(); ++i) out[i] = LoadFloat(dtype, bytes.data() + i * size);
  return out;
}

std::vector<float> Random::Floats(int64_t n, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(engine_);
  return x;
}

WeightSource Source(const Values& v, int64_t rows, int64_t cols) {
  WeightSource s;
  s.dtype = v.dtype;
  s.data = v.bytes.data();
  s.rows = rows;
  s.cols = cols;
  s.row_stride = cols;
  return s;
}

RowsView View(const Values& v, int64_t rows, int64_t cols) {
  return {v.bytes.data(), v.dtype, rows, cols, cols};
}

void ExpectNear(const std::string& what, const std::vector<float>& got, const std::vector<float>& want,
                const std::vector<double>& bound, int64_t cols) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_EQ(got.size(), bound.size()) << what;
  int failures = 0;
  for (size_t i = 0; i < got.size() && failures < 5; ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (got[i] == want[i]) continue;
    if (std::fabs(static_cast<double>(got[i]) - want[i]) <= bound[i]) continue;
    ++failures;
    ADD_FAILURE() << what << ": row " << i / static_cast<size_t>(cols) << " column " << i % static_cast<size_t>(cols)
                  << ": got " << got[i] << ", want " << want[i] << " ± " << bound[i];
  }
}

void ExpectSameBits(const std::string& what, const std::vector<float>& got, const std::vector<float>& want,
                    int64_t cols) {
  ASSERT_EQ(got.size(), want.size()) << what;
  int failures = 0;
  for (size_t i = 0; i < got.size() && failures < 5; ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
    ++failures;
    ADD_FAILURE() << what << ": row " << i / static_cast<size_t>(cols) << " column " << i % static_cast<size_t>(cols)
                  << ": got " << got[i] << ", want the bits of " << want[i];
  }
}

}  // namespace moe::device_test
