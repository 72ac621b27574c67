// The token mixers of a layer. Every mixer has one entry: Forward(context, h, slices, x) adds its output to the
// residual rows x. A slice is a part of one sequence, of any length: decoding is a slice of one token, there is no
// prefill flag.
#ifndef MOE_ENGINE_MODEL_MIXERS_MIXERS_H_
#define MOE_ENGINE_MODEL_MIXERS_MIXERS_H_

#include <span>

#include "engine/device/ops.h"
#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

// cos and sin of every row's position, [rows, rotary_dim / 2]; null without RoPE.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Grouped-query attention over the paged cache.
class AttentionMixer {
 public:
  AttentionMixer(const AttentionSpec* spec, const PackedAttention* weights) : spec_(spec), weights_(weights) {}
  // x [rows, H] += attention(h).
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
               const KvLayer& kv, const RopeTable& rope, float* x) const;

 private:
  const AttentionSpec* spec_;
  const PackedAttention* weights_;
};

// Mamba-2; the slices carry its states.
class Mamba2Mixer {
 public:
  Mamba2Mixer(const Mamba2Spec* spec, const PackedMamba2* weights) : spec_(spec), weights_(weights) {}
  // x [rows, H] += mamba2(h); moves the states on.
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices, float* x) const;

 private:
  const Mamba2Spec* spec_;
  const PackedMamba2* weights_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_MIXERS_MIXERS_H_
