// The attention of the amx path over a model of its tiles, for machines without them.
#ifndef MOE_TESTS_ENGINE_DEVICE_AMX_ATTENTION_MODEL_H_
#define MOE_TESTS_ENGINE_DEVICE_AMX_ATTENTION_MODEL_H_

#include "engine/device/cpu/kernels.h"

namespace moe::device_test {

// Of bf16 activations, for a processor with AVX512-BF16.
cpu::AttentionKernels AmxModelAttention();

}  // namespace moe::device_test

#endif  // MOE_TESTS_ENGINE_DEVICE_AMX_ATTENTION_MODEL_H_
