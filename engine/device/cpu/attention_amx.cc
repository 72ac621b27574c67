// Attention with the tiles of AMX: attention_amx-inl.h.
#include "engine/device/cpu/kernels.h"

#define MOE_CPU_NS amx
// Each builds on the one before.
// clang-format off
#include "engine/device/cpu/vec16_avx512-inl.h"
#include "engine/device/cpu/math-inl.h"
#include "engine/device/cpu/amx_tiles-inl.h"
#include "engine/device/cpu/attention_rows-inl.h"
#include "engine/device/cpu/attention_bf16-inl.h"
#include "engine/device/cpu/attention_amx-inl.h"
// clang-format on

namespace moe::cpu {

AttentionKernels AmxAttention() {
  using namespace amx;
  return {AttendBf16<AmxProducts<AmxTiles>>, MergeBf16Partials, Bf16ScratchFloats};
}

}  // namespace moe::cpu
