// Each path's sum has exactly the order its kernel states: the scalar models here give the same bits (N1, N3).
#include <cmath>

#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

float Flush(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

// K is padded with zeros to 32: a sum of -0 then ends as +0.
int64_t Padded(int64_t k) {
  return (k + 31) / 32 * 32;
}
float At(const float* x, int64_t i, int64_t k) {
  return i < k ? x[i] : 0.0f;
}

// Float32 FMA: one chain, k ascending.
float FmaOrder(const float* a, const float* w, int64_t k) {
  float s = 0;
  for (int64_t i = 0; i < Padded(k); ++i) s = std::fma(At(a, i, k), At(w, i, k), s);
  return s;
}

float FlushedFma(const float* a, const float* w, int64_t i, int64_t k, float s) {
  return Flush(std::fma(Flush(At(a, i, k)), Flush(At(w, i, k)), s));
}

// vdpbf16ps: one chain over pairs; the odd product first, then the even one, each fused, denormals as zero.
float DpOrder(const float* a, const float* w, int64_t k) {
  float s = 0;
  for (int64_t i = 0; i < Padded(k); i += 2) s = FlushedFma(a, w, i, k, FlushedFma(a, w, i + 1, k, s));
  return s;
}

// AMX: blocks of 32; even and odd terms in two chains; their sum is added to the total.
float AmxOrder(const float* a, const float* w, int64_t k) {
  float total = 0;
  for (int64_t block = 0; block < k; block += 32) {
    float even = 0;
    float odd = 0;
    for (int64_t i = block; i < block + 32; i += 2) {
      even = FlushedFma(a, w, i, k, even);
      odd = FlushedFma(a, w, i + 1, k, odd);
    }
    total = Flush(total + Flush(even + odd));
  }
  return total;
}

using Order = float (*)(const float*, const float*, int64_t);

void Check(CpuIsa isa, DType act, DType weights, Order order, float scale) {
  if (!CpuIsaAvailable(isa)) GTEST_SKIP() << "this processor has no " << CpuIsaName(isa);
  WorkerPool pool(2);
  auto cpu = MakeCpu(isa, act, &pool);
  for (int64_t m : {1, 2, 3, 6, 12, 14, 40}) {
    for (int64_t k : {1, 5, 32, 47, 256, 1000}) {
      const int64_t n = 53;
      Random random(static_cast<uint32_t>(m * 1000 + k));
      const Values a = random.Make(act, m * k, scale);
      const Values w = random.Make(weights, n * k, scale);
      const WeightSource source = Source(w, n, k);
      auto packed = cpu->Pack({&source, 1}, weights);
      std::vector<float> got(static_cast<size_t>(m * n));
      GemmOp op;
      op.a = View(a, m, k);
      op.w = packed.get();
      op.out = got.data();
      op.out_stride = n;
      cpu->Gemm(op);
      std::vector<float> want(got.size());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) want[i * n + j] = order(&a.floats[i * k], &w.floats[j * k], k);
      }
      ExpectSameBits(Cat(CpuIsaName(isa), " ", DTypeName(weights), " ", m, "×", n, "×", k), got, want, n);
    }
  }
}

TEST(GemmOrder, Avx2Bf16) {
  Check(CpuIsa::kAvx2, DType::kBF16, DType::kBF16, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx2F16) {
  Check(CpuIsa::kAvx2, DType::kF32, DType::kF16, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx2F32) {
  Check(CpuIsa::kAvx2, DType::kF32, DType::kF32, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx512Bf16ByFma) {
  Check(CpuIsa::kAvx512, DType::kBF16, DType::kBF16, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx512F16) {
  Check(CpuIsa::kAvx512, DType::kF32, DType::kF16, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx512F32) {
  Check(CpuIsa::kAvx512, DType::kF32, DType::kF32, FmaOrder, 1.0f);
}
TEST(GemmOrder, Avx512Bf16) {
  Check(CpuIsa::kAvx512Bf16, DType::kBF16, DType::kBF16, DpOrder, 1.0f);
}
// Products around 2^-126, where flushing shows.
TEST(GemmOrder, Avx512Bf16Denormals) {
  Check(CpuIsa::kAvx512Bf16, DType::kBF16, DType::kBF16, DpOrder, 0x1p-63f);
}
TEST(GemmOrder, Amx) {
  Check(CpuIsa::kAmx, DType::kBF16, DType::kBF16, AmxOrder, 1.0f);
}
TEST(GemmOrder, AmxDenormals) {
  Check(CpuIsa::kAmx, DType::kBF16, DType::kBF16, AmxOrder, 0x1p-63f);
}

}  // namespace
}  // namespace moe::device_test
