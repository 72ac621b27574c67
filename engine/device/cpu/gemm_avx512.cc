#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS avx512
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/epilogue-inl.h"
#include "engine/device/cpu/gemm_fma-inl.h"
// clang-format on

namespace moe::cpu {

GemmFn Avx512Gemm(Element weights) {
  return avx512::ChooseFmaGemm(weights);
}

}  // namespace moe::cpu
