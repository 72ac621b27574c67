// Decoder: one forward pass of any ModelSpec over a batch of slices. It owns nothing but its layers' views of the
// packed weights and has no state of its own: caches and states come in through DecodeBatch.
#ifndef MOE_ENGINE_MODEL_DECODER_H_
#define MOE_ENGINE_MODEL_DECODER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"
#include "engine/model/hyper_connection.h"
#include "engine/model/mixers/mixers.h"
#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

struct DecodeSlice {
  int64_t first_pos = 0;
  int64_t count = 0;
  std::span<const int32_t> blocks;  // covers positions < first_pos + count
  int64_t state_slot = -1;
  std::span<const int32_t> tokens;  // of the sequence, from position 0 on; only models with hashed n-grams read it
  bool long_context = false;        // SequenceInit's
};

struct DecodeBatch {
  std::span<const int32_t> tokens;  // of all slices, one after the other
  std::span<const DecodeSlice> slices;
  KvStore* kv = nullptr;
  StateStore* states = nullptr;
  // Called once per MoE layer, with its ordinal among the MoE layers; may be empty.
  std::function<void(int64_t moe_ordinal, const Routing&)> on_routing;
};

class Decoder {
 public:
  // All arguments outlive this. `placements`: one per MoE layer.
  Decoder(const ModelSpec* spec, const PackedModel* weights, std::span<const ExpertPlacement> placements);
  // Between two forward passes; placements as above.
  void SetPlacements(std::span<const ExpertPlacement> placements) { placements_ = placements; }

  // Runs all layers. Returns the residual rows [tokens, H] before the final norm, in the arena, until its Reset.
  // Every rank calls this in every step, also with no tokens, since every rank takes part in the exchanges.
  StatusOr<float*> Forward(const ForwardContext& context, const DecodeBatch& batch) const;

  // logits [rows.size(), V] of the given rows of Forward's result.
  void Logits(const ForwardContext& context, const float* hidden, std::span<const int32_t> rows, float* logits) const;

 private:
  // What one Forward works on.
  struct Step {
    const DecodeBatch* batch = nullptr;
    int64_t rows = 0;
    float* x = nullptr;                   // [rows, H], the residual; with hyper-connections [rows, streams * H]
    float* deferred = nullptr;            // [rows, H]: what a layer leaves for the end of the next; 0 between
    const float* layer_inputs = nullptr;  // [rows, layers * dim], LayerInputSpec's e
    std::span<RopeTable> ropes;
    std::span<MixerSlice> slices;
    StepState state;
  };

  int64_t RopeIndex(const RopeSpec* rope);
  void AllocateSelections(const ForwardContext& context, Step& step) const;
  Status ForwardLayer(const ForwardContext& context, Step& step, int64_t l) const;
  void Embed(const ForwardContext& context, const DecodeBatch& batch, int64_t rows, float* x) const;
  void AddNgrams(const ForwardContext& context, Step& step, int64_t l) const;
  void MixerBranch(const ForwardContext& context, Step& step, int64_t l) const;
  void ForwardMixer(const ForwardContext& context, Step& step, int64_t l, const HiddenRows& h, float* out) const;
  Status FfnBranch(const ForwardContext& context, Step& step, int64_t l, const float* source) const;
  void NormInPlace(const ForwardContext& context, const NormSpec& spec, const PackedNorm& weights, float* out,
                   int64_t rows) const;
  void JoinResidual(const ForwardContext& context, const ResidualSpec& residual, const PackedResidual& weights,
                    const HiddenRows& h, const float* out, float* x) const;
  // out += conv(out) of `taps` taps, whose ring is at tail_offset in the layer's tails.
  void BranchConv(const ForwardContext& context, const Step& step, int64_t l, int64_t taps,
                  const std::vector<float>& weights, int64_t tail_offset, float* out) const;
  std::span<RopeTable> RopeTables(const ForwardContext& context, const DecodeBatch& batch) const;

  const ModelSpec* spec_;
  const PackedModel* weights_;
  std::span<const ExpertPlacement> placements_;
  std::vector<MoERunner> moe_;          // by ordinal
  std::vector<int64_t> moe_ordinal_;    // by layer; -1 without MoE
  std::vector<const RopeSpec*> ropes_;  // the different ones
  std::vector<int64_t> rope_of_layer_;  // by layer; -1 without
  std::vector<int64_t> indexer_rope_of_layer_;
  std::optional<HyperConnection> hyper_;
  bool defers_ = false;  // some layer's ffn is added at the end of the next
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_DECODER_H_
