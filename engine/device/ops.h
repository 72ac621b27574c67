// The operations of a backend as plain structs: what comes in, what goes out, in which shapes. No tensor classes here,
// so that kernels of any kind can be written against them. All matrices are row-major; `stride` counts elements.
//
// "act" is the activation dtype of the model in memory (bfloat16 for bfloat16 weights, float32 for float32 and float16
// weights): a float32 row is rounded to it once, on entering a GEMM, the K/V cache or the wire. Everything else is
// float32. The order of every sum depends on the shapes of the weights alone, never on how many rows there are
// (architecture: the numerics contract, N1–N8).
#ifndef MOE_ENGINE_DEVICE_OPS_H_
#define MOE_ENGINE_DEVICE_OPS_H_

#include "engine/device/attention_ops.h"
#include "engine/device/device_tensors.h"
#include "engine/device/moe_ops.h"
#include "engine/device/recurrent_ops.h"
#include "engine/device/row_ops.h"

#endif  // MOE_ENGINE_DEVICE_OPS_H_
