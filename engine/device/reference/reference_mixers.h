// Attention and Mamba-2 of the reference backend.
#ifndef MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MIXERS_H_
#define MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MIXERS_H_

#include "engine/device/ops.h"

namespace moe::reference {

void Qkv(const QkvOp& op, DType act);
void Attention(const AttentionOp& op, DType act);
void Mamba2(const Mamba2Op& op, DType act);

}  // namespace moe::reference

#endif  // MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MIXERS_H_
