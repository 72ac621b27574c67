#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>

#include "parallel/base/check.h"

namespace moe {
namespace {

bool SameRope(const RopeSpec& a, const RopeSpec& b) {
  return a.layout == b.layout && a.rotary_dim == b.rotary_dim && a.inv_freq == b.inv_freq &&
         a.cos_sin_scale == b.cos_sin_scale;
}

// x [rows, dim] → norm in float32 and in act, in the arena.
HiddenRows Normalize(const ForwardContext& context, const NormSpec& spec, const PackedNorm& weights, const float* x,
                     int64_t rows, int64_t dim, bool want_f32) {
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  auto* f32 = want_f32 ? context.arena->Allocate<float>(rows * dim) : nullptr;
  std::byte* act = context.arena->AllocateBytes(rows * dim * element);
  if (rows > 0) {
    context.backend->Norm({.x = x,
                           .rows = rows,
                           .dim = dim,
                           .stride = dim,
                           .spec = spec,
                           .weight = weights.weight.data(),
                           .bias = weights.bias_or_null(),
                           .out_f32 = f32,
                           .out_act = act});
  }
  return {f32, act, rows};
}

RowsView ActRows(const Backend& backend, const std::byte* data, int64_t rows, int64_t cols) {
  return {data, backend.act_dtype(), rows, cols, cols};
}

}  // namespace

Decoder::Decoder(const ModelSpec* spec, const PackedModel* weights, std::span<const ExpertPlacement> placements)
    : spec_(spec), weights_(weights), placements_(placements) {
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    const auto* moe = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    moe_ordinal_.push_back(moe == nullptr ? -1 : static_cast<int64_t>(moe_.size()));
    if (moe != nullptr) moe_.emplace_back(moe, weights->layers[l].moe.get(), static_cast<int64_t>(l));

    const auto* attention = std::get_if<AttentionSpec>(&spec->layers[l].mixer);
    rope_of_layer_.push_back(-1);
    if (attention == nullptr || !attention->rope) continue;
    size_t i = 0;
    while (i < ropes_.size() && !SameRope(*ropes_[i], *attention->rope)) ++i;
    if (i == ropes_.size()) ropes_.push_back(&*attention->rope);
    rope_of_layer_.back() = static_cast<int64_t>(i);
  }
  MOE_CHECK_EQ(placements.size(), moe_.size());
}

std::vector<RopeTable> Decoder::RopeTables(const ForwardContext& context, const DecodeBatch& batch) const {
  std::vector<RopeTable> tables;
  for (const RopeSpec* rope : ropes_) {
    const int64_t half = rope->rotary_dim / 2;
    auto* cos = context.arena->Allocate<float>(static_cast<int64_t>(batch.tokens.size()) * half);
    auto* sin = context.arena->Allocate<float>(static_cast<int64_t>(batch.tokens.size()) * half);
    tables.push_back({cos, sin});
    for (const DecodeSlice& slice : batch.slices) {
      for (int64_t i = 0; i < slice.count; ++i) {
        for (int64_t j = 0; j < half; ++j) {
          // The angle is rounded to float32 as the reference implementations do; its sine is then taken exactly.
          const float angle = static_cast<float>(slice.first_pos + i) * static_cast<float>(rope->inv_freq[j]);
          *cos++ = static_cast<float>(std::cos(static_cast<double>(angle)) * rope->cos_sin_scale);
          *sin++ = static_cast<float>(std::sin(static_cast<double>(angle)) * rope->cos_sin_scale);
        }
      }
    }
  }
  return tables;
}

StatusOr<float*> Decoder::Forward(const ForwardContext& context, const DecodeBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const int64_t hidden = spec_->hidden_size;
  auto* x = context.arena->Allocate<float>(rows * hidden);
  if (rows > 0) {
    context.backend->Embed({.table = weights_->embed, .ids = batch.tokens, .scale = spec_->embedding_scale, .out = x});
  }
  const std::vector<RopeTable> ropes = RopeTables(context, batch);
  std::vector<MixerSlice> slices;
  int64_t row = 0;
  for (const DecodeSlice& slice : batch.slices) {
    slices.push_back({.row0 = row, .first_pos = slice.first_pos, .count = slice.count, .blocks = slice.blocks});
    row += slice.count;
  }
  MOE_CHECK_EQ(row, rows);

  for (size_t l = 0; l < spec_->layers.size(); ++l) {
    const LayerSpec& layer = spec_->layers[l];
    const PackedLayer& weights = weights_->layers[l];
    if (context.heartbeat != nullptr) context.heartbeat->fetch_add(1, std::memory_order_relaxed);
    if (rows > 0 && !std::holds_alternative<std::monostate>(layer.mixer)) {
      const Arena::Scope scope(context.arena);
      const HiddenRows h = Normalize(context, layer.mixer_norm, weights.mixer_norm, x, rows, hidden, false);
      if (weights.attention != nullptr) {
        const RopeTable rope = rope_of_layer_[l] < 0 ? RopeTable{} : ropes[rope_of_layer_[l]];
        AttentionMixer(&std::get<AttentionSpec>(layer.mixer), weights.attention.get())
            .Forward(context, h, slices, batch.kv->layer(static_cast<int64_t>(l)), rope, x);
      } else {
        for (size_t i = 0; i < slices.size(); ++i) {
          slices[i].conv_state = batch.states->conv_state(static_cast<int64_t>(l), batch.slices[i].state_slot);
          slices[i].ssm_state = batch.states->ssm_state(static_cast<int64_t>(l), batch.slices[i].state_slot);
        }
        Mamba2Mixer(&std::get<Mamba2Spec>(layer.mixer), weights.mamba2.get()).Forward(context, h, slices, x);
      }
    }
    if (const int64_t ordinal = moe_ordinal_[l]; ordinal >= 0) {
      const Arena::Scope scope(context.arena);
      const HiddenRows h = Normalize(context, layer.ffn_norm, weights.ffn_norm, x, rows, hidden, true);
      std::function<void(const Routing&)> on_routing;
      if (batch.on_routing) on_routing = [&](const Routing& routing) { batch.on_routing(ordinal, routing); };
      MOE_RETURN_IF_ERROR(moe_[ordinal].Forward(context, placements_[ordinal], h, hidden, x, on_routing));
    } else if (rows > 0 && weights.mlp != nullptr) {
      const Arena::Scope scope(context.arena);
      const HiddenRows h = Normalize(context, layer.ffn_norm, weights.ffn_norm, x, rows, hidden, false);
      ForwardMlp(context, *weights.mlp, std::get<MlpSpec>(layer.ffn).activation, h, nullptr, x);
    }
  }
  return x;
}

void Decoder::Logits(const ForwardContext& context, const float* hidden, std::span<const int32_t> rows,
                     float* logits) const {
  const Arena::Scope scope(context.arena);
  const int64_t dim = spec_->hidden_size;
  const auto count = static_cast<int64_t>(rows.size());
  auto* picked = context.arena->Allocate<float>(count * dim);
  for (int64_t r = 0; r < count; ++r) std::copy_n(hidden + rows[r] * dim, dim, picked + r * dim);
  const HiddenRows h = Normalize(context, spec_->final_norm, weights_->final_norm, picked, count, dim, false);
  context.backend->Gemm({.a = ActRows(*context.backend, h.act, count, dim),
                         .w = weights_->head.get(),
                         .out = logits,
                         .out_stride = spec_->vocab_size});
  if (spec_->logit_scale != 1.0f) {
    for (int64_t i = 0; i < count * spec_->vocab_size; ++i) logits[i] *= spec_->logit_scale;
  }
}

}  // namespace moe
