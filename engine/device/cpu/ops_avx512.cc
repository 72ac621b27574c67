#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS avx512
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/rows-inl.h"
#include "engine/device/cpu/attention_rows-inl.h"
#include "engine/device/cpu/attention-inl.h"
#include "engine/device/cpu/convolution-inl.h"
#include "engine/device/cpu/mamba1-inl.h"
#include "engine/device/cpu/mamba2-inl.h"
#include "engine/device/cpu/gated_delta-inl.h"
#include "engine/device/cpu/lightning-inl.h"
#include "engine/device/cpu/op_table-inl.h"
// clang-format on

namespace moe::cpu {

const OpKernels& Avx512Ops() {
  return avx512::kOps;
}

}  // namespace moe::cpu
