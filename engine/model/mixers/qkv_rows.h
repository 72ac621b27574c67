// The rows that attention cuts its queries, keys and values from.
#ifndef MOE_ENGINE_MODEL_MIXERS_QKV_ROWS_H_
#define MOE_ENGINE_MODEL_MIXERS_QKV_ROWS_H_

#include <span>

#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

struct QkvRows {
  const float* data = nullptr;  // [rows, q, k and v dims], rows `stride` apart
  int64_t stride = 0;
  const float* relative = nullptr;  // RelativeBiasSpec's x, rows as far apart, or null
};

// As projected, where the spec asks for it with their convolution.
QkvRows ProjectQkv(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
                   const HiddenRows& h, std::span<const MixerSlice> slices, const KvLayer& kv);

// Compressed convolutional attention's.
QkvRows CcaQkv(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
               const HiddenRows& h, std::span<const MixerSlice> slices, const KvLayer& kv);

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_MIXERS_QKV_ROWS_H_
