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

// What the layers of one step hand on to later layers.
struct StepState {
  float* router_carry = nullptr;       // [rows, width]: what a router that carries its state left, or null
  std::span<KeySelection> selections;  // by layer: what its indexer chose; the rows are there before it has run
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

// Multi-head latent attention in its absorbed form, with an indexer if the spec has one.
class MlaMixer {
 public:
  MlaMixer(const MlaSpec* spec, const PackedMla* weights) : spec_(spec), weights_(weights) {}
  // `rope` is the attention's, `indexer_rope` the indexer's. Layer `layer` leaves its selection in `state`; one that
  // shares another's takes it from there.
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
               const KvLayer& kv, const RopeTable& rope, const RopeTable& indexer_rope, int64_t layer, StepState* state,
               float* x) const;

 private:
  const MlaSpec* spec_;
  const PackedMla* weights_;
};

// DeepSeek-V4's attention over a window and compressed entries.
class CompressedAttentionMixer {
 public:
  CompressedAttentionMixer(const CompressedAttentionSpec* spec, const PackedCompressedAttention* weights)
      : spec_(spec), weights_(weights) {}
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
               const KvLayer& kv, const RopeTable& rope, float* x) const;

 private:
  // Whether some row has more entries than its indexer lets it read.
  bool ChoosesEntries(std::span<const MixerSlice> slices) const;
  // [rows, groups * rank] in act: o_a of each group of heads.
  const std::byte* OutputLatents(const ForwardContext& context, const std::byte* mixed, int64_t rows) const;

  const CompressedAttentionSpec* spec_;
  const PackedCompressedAttention* weights_;
};

// Gated delta rule (Gated DeltaNet, Kimi delta attention); the slices carry its states.
class GatedDeltaMixer {
 public:
  GatedDeltaMixer(const GatedDeltaSpec* spec, const PackedGatedDelta* weights) : spec_(spec), weights_(weights) {}
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices, float* x) const;

 private:
  const GatedDeltaSpec* spec_;
  const PackedGatedDelta* weights_;
};

class Mamba1Mixer {
 public:
  Mamba1Mixer(const Mamba1Spec* spec, const PackedMamba1* weights) : spec_(spec), weights_(weights) {}
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices, float* x) const;

 private:
  const Mamba1Spec* spec_;
  const PackedMamba1* weights_;
};

class LightningMixer {
 public:
  LightningMixer(const LightningSpec* spec, const PackedLightning* weights) : spec_(spec), weights_(weights) {}
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
               const RopeTable& rope, float* x) const;

 private:
  const LightningSpec* spec_;
  const PackedLightning* weights_;
};

class ShortConvMixer {
 public:
  ShortConvMixer(const ShortConvSpec* spec, const PackedShortConv* weights) : spec_(spec), weights_(weights) {}
  void Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices, float* x) const;

 private:
  const ShortConvSpec* spec_;
  const PackedShortConv* weights_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_MIXERS_MIXERS_H_
