#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/device/reference/reference_math.h"
#include "engine/model/layer_input.h"
#include "engine/model/mixers/project.h"
#include "engine/model/ngram_embedding.h"
#include "parallel/base/check.h"

namespace moe {
namespace {

bool SameRope(const RopeSpec& a, const RopeSpec& b) {
  return a == b;
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
                           .weight = weights.weight_or_null(),
                           .bias = weights.bias_or_null(),
                           .out_f32 = f32,
                           .out_act = act});
  }
  return {f32, act, rows};
}

// … times the gate, if there is one: both forms.
HiddenRows NormalizeGated(const ForwardContext& context, const NormSpec& spec, const PackedNorm& weights,
                          const PackedNormGate& gate, const float* x, int64_t rows, int64_t dim, bool want_f32) {
  const HiddenRows h = Normalize(context, spec, weights, x, rows, dim, want_f32 || gate.down != nullptr);
  if (gate.down == nullptr || rows == 0) return h;
  const int64_t rank = gate.down->rows();
  float* low = Project(context, h.act, rows, *gate.down, nullptr);
  for (int64_t i = 0; i < rows * rank; ++i) low[i] = reference::Silu(low[i]);
  const float* factors = Project(context, RoundRows(context, low, rows, rank, rank), rows, *gate.up, nullptr);
  auto* gated = context.arena->Allocate<float>(rows * dim);
  for (int64_t i = 0; i < rows * dim; ++i) gated[i] = h.f32[i] * reference::Sigmoid(factors[i]);
  return {gated, RoundRows(context, gated, rows, dim, dim), rows};
}

RowsView ActRows(const Backend& backend, const std::byte* data, int64_t rows, int64_t cols) {
  return {data, backend.act_dtype(), rows, cols, cols};
}

// Whether a mixer reads its input unrounded too, for scores that decide.
bool NeedsFloatRows(const MixerSpec& mixer) {
  const auto* attention = std::get_if<AttentionSpec>(&mixer);
  if (attention != nullptr && (attention->head_experts || attention->block_indexer)) return true;
  const auto* mla = std::get_if<MlaSpec>(&mixer);
  if (mla != nullptr && mla->indexer && mla->indexer->share_with_layer < 0) return true;
  const auto* compressed = std::get_if<CompressedAttentionSpec>(&mixer);
  return compressed != nullptr && compressed->indexer.has_value();
}

bool IsPlain(const ResidualSpec& residual) {
  return residual.skip == 1 && residual.branch == 1 && !residual.skip_normed && !residual.learnt;
}

// A branch that is added to the residual rows as it is may be accumulated there directly.
bool AddsDirectly(const LayerSpec& layer) {
  return !layer.ffn_own_post_norm.present() && !layer.ffn_post_norm.present() && IsPlain(layer.ffn_residual) &&
         !layer.beside && !layer.defer_ffn && !layer.ffn_scale && layer.ffn_conv == 0;
}

int64_t MaxRouterWidth(const ModelSpec& spec) {
  int64_t width = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe != nullptr && moe->router.mlp) width = std::max(width, moe->router.mlp->width);
  }
  return width;
}

float* Zeros(const ForwardContext& context, int64_t count) {
  auto* zeros = context.arena->Allocate<float>(count);
  std::fill_n(zeros, count, 0.0f);
  return zeros;
}

}  // namespace

Decoder::Decoder(const ModelSpec* spec, const PackedModel* weights, std::span<const ExpertPlacement> placements)
    : spec_(spec), weights_(weights), placements_(placements) {
  if (spec->hyper) hyper_.emplace(&*spec->hyper, spec->hidden_size);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    const auto* moe = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    moe_ordinal_.push_back(moe == nullptr ? -1 : static_cast<int64_t>(moe_.size()));
    if (moe != nullptr) moe_.emplace_back(moe, weights->layers[l].moe.get(), static_cast<int64_t>(l));
    defers_ = defers_ || spec->layers[l].defer_ffn;
    const MixerRopes ropes = RopesOf(spec->layers[l].mixer);
    rope_of_layer_.push_back(RopeIndex(ropes.own));
    indexer_rope_of_layer_.push_back(RopeIndex(ropes.indexer));
  }
  MOE_CHECK_EQ(placements.size(), moe_.size());
}

int64_t Decoder::RopeIndex(const RopeSpec* rope) {
  if (rope == nullptr) return -1;
  size_t i = 0;
  while (i < ropes_.size() && !SameRope(*ropes_[i], *rope)) ++i;
  if (i == ropes_.size()) ropes_.push_back(rope);
  return static_cast<int64_t>(i);
}

std::span<RopeTable> Decoder::RopeTables(const ForwardContext& context, const DecodeBatch& batch) const {
  const std::span<RopeTable> tables = context.arena->AllocateObjects<RopeTable>(ropes_.size());
  for (size_t t = 0; t < ropes_.size(); ++t) {
    const RopeSpec* rope = ropes_[t];
    const int64_t half = rope->rotary_dim / 2;
    auto* cos = context.arena->Allocate<float>(static_cast<int64_t>(batch.tokens.size()) * half);
    auto* sin = context.arena->Allocate<float>(static_cast<int64_t>(batch.tokens.size()) * half);
    tables[t] = {cos, sin};
    for (const DecodeSlice& slice : batch.slices) {
      for (int64_t i = 0; i < slice.count; ++i) {
        reference::RotationAt(*rope, slice.first_pos + i, cos, sin, slice.long_context);
        cos += half;
        sin += half;
      }
    }
  }
  return tables;
}

// out [rows, H] → its norm, in place.
void Decoder::NormInPlace(const ForwardContext& context, const NormSpec& spec, const PackedNorm& weights, float* out,
                          int64_t rows) const {
  if (!spec.present()) return;
  context.backend->Norm({.x = out,
                         .rows = rows,
                         .dim = spec_->hidden_size,
                         .stride = spec_->hidden_size,
                         .spec = spec,
                         .weight = weights.weight_or_null(),
                         .bias = weights.bias_or_null(),
                         .out_f32 = out});
}

// x = skip * (x or the normed input) + branch * out.
void Decoder::JoinResidual(const ForwardContext& context, const ResidualSpec& residual, const PackedResidual& weights,
                           const HiddenRows& h, const float* out, float* x) const {
  const int64_t hidden = spec_->hidden_size;
  if (residual.learnt) {
    context.backend->Affine({.dst = x,
                             .dst_bias = weights.skip_bias.data(),
                             .dst_scale = weights.skip.data(),
                             .src = out,
                             .src_bias = weights.branch_bias.data(),
                             .src_scale = weights.branch.data(),
                             .rows = h.rows,
                             .dim = hidden});
    return;
  }
  if (residual.skip_normed) std::copy_n(h.f32, h.rows * hidden, x);
  context.backend->AddRows(
      {.dst = x, .src = out, .skip = residual.skip, .scale = residual.branch, .rows = h.rows, .dim = hidden});
}

void Decoder::BranchConv(const ForwardContext& context, const Step& step, int64_t l, int64_t taps,
                         const std::vector<float>& weights, int64_t tail_offset, float* out) const {
  const int64_t hidden = spec_->hidden_size;
  const std::span<const MixerSlice> slices = WithWindows(context, {.x = out,
                                                                   .stride = hidden,
                                                                   .channels = hidden,
                                                                   .window = taps - 1,
                                                                   .tail_offset = tail_offset,
                                                                   .slices = step.slices,
                                                                   .kv = step.batch->kv->layer(l)});
  context.backend->Conv({.x = out,
                         .stride = hidden,
                         .channels = hidden,
                         .kernel = taps,
                         .weight = weights.data(),
                         .slices = slices,
                         .residual = true,
                         .out = out,
                         .out_stride = hidden});
}

void Decoder::ForwardMixer(const ForwardContext& context, Step& step, int64_t l, const HiddenRows& h,
                           float* out) const {
  const LayerSpec& layer = spec_->layers[l];
  const PackedLayer& weights = weights_->layers[l];
  const auto table = [&](int64_t index) { return index < 0 ? RopeTable{} : step.ropes[index]; };
  const RopeTable rope = table(rope_of_layer_[l]);
  if (CacheOf(layer.mixer).state > 0) {
    for (size_t i = 0; i < step.slices.size(); ++i) {
      step.slices[i].state = step.batch->states->state(l, step.batch->slices[i].state_slot);
    }
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
    const int64_t source = attention->share_kv_with_layer < 0 ? l : attention->share_kv_with_layer;
    AttentionMixer(attention, weights.attention.get())
        .Forward(context, h, step.slices, step.batch->kv->layer(source), rope, out);
  } else if (const auto* mla = std::get_if<MlaSpec>(&layer.mixer)) {
    MlaMixer(mla, weights.mla.get())
        .Forward(context, h, step.slices, step.batch->kv->layer(l), rope, table(indexer_rope_of_layer_[l]), l,
                 &step.state, out);
  } else if (const auto* mamba2 = std::get_if<Mamba2Spec>(&layer.mixer)) {
    Mamba2Mixer(mamba2, weights.mamba2.get()).Forward(context, h, step.slices, out);
  } else if (const auto* delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) {
    GatedDeltaMixer(delta, weights.gated_delta.get()).Forward(context, h, step.slices, out);
  } else if (const auto* mamba1 = std::get_if<Mamba1Spec>(&layer.mixer)) {
    Mamba1Mixer(mamba1, weights.mamba1.get()).Forward(context, h, step.slices, out);
  } else if (const auto* lightning = std::get_if<LightningSpec>(&layer.mixer)) {
    LightningMixer(lightning, weights.lightning.get()).Forward(context, h, step.slices, rope, out);
  } else if (const auto* conv = std::get_if<ShortConvSpec>(&layer.mixer)) {
    ShortConvMixer(conv, weights.short_conv.get()).Forward(context, h, step.slices, out);
  } else if (const auto* compressed = std::get_if<CompressedAttentionSpec>(&layer.mixer)) {
    CompressedAttentionMixer(compressed, weights.compressed_attention.get())
        .Forward(context, h, step.slices, step.batch->kv->layer(l), rope, out);
  }
}

void Decoder::AddNgrams(const ForwardContext& context, Step& step, int64_t l) const {
  const LayerSpec& layer = spec_->layers[l];
  if (!layer.ngram || step.rows == 0) return;
  const Arena::Scope scope(context.arena);
  const std::span<int32_t> ids =
      context.arena->AllocateObjects<int32_t>(static_cast<size_t>(step.rows * layer.ngram->heads()));
  for (size_t i = 0; i < step.slices.size(); ++i) {
    const DecodeSlice& slice = step.batch->slices[i];
    step.slices[i].state = step.batch->states->state(l, slice.state_slot);
    HashNgrams(*layer.ngram, slice.tokens, slice.first_pos, slice.count,
               ids.data() + step.slices[i].row0 * layer.ngram->heads());
  }
  NgramEmbedding(&*layer.ngram, weights_->layers[l].ngram.get())
      .Forward(context, ids, step.slices, CacheOf(layer.mixer).state, step.rows, spec_->hidden_size, step.x);
}

void Decoder::MixerBranch(const ForwardContext& context, Step& step, int64_t l) const {
  const LayerSpec& layer = spec_->layers[l];
  if (step.rows == 0 || std::holds_alternative<std::monostate>(layer.mixer)) return;
  const PackedLayer& weights = weights_->layers[l];
  const Arena::Scope scope(context.arena);
  const HyperRows read = hyper_ ? hyper_->Read(context, weights.mixer_hyper, step.x, step.rows) : HyperRows{};
  const HiddenRows h =
      NormalizeGated(context, layer.mixer_norm, weights.mixer_norm, weights.mixer_norm_gate, hyper_ ? read.row : step.x,
                     step.rows, spec_->hidden_size, layer.mixer_residual.skip_normed || NeedsFloatRows(layer.mixer));
  const bool direct =
      !hyper_ && !layer.mixer_post_norm.present() && IsPlain(layer.mixer_residual) && layer.mixer_conv == 0;
  float* out = direct ? step.x : Zeros(context, step.rows * spec_->hidden_size);
  ForwardMixer(context, step, l, h, out);
  if (direct) return;
  if (layer.mixer_conv > 0) {
    BranchConv(context, step, l, layer.mixer_conv, weights.mixer_conv, CacheOf(layer.mixer).tail, out);
  }
  NormInPlace(context, layer.mixer_post_norm, weights.mixer_post_norm, out, step.rows);
  if (hyper_) return hyper_->Write(context, read, out, step.rows, step.x);
  JoinResidual(context, layer.mixer_residual, weights.mixer_residual, h, out, step.x);
}

// `source`: the residual rows the ffn reads, x itself but in parallel blocks.
Status Decoder::FfnBranch(const ForwardContext& context, Step& step, int64_t l, const float* source) const {
  const LayerSpec& layer = spec_->layers[l];
  const PackedLayer& weights = weights_->layers[l];
  const int64_t hidden = spec_->hidden_size;
  const int64_t ordinal = moe_ordinal_[l];
  if (std::holds_alternative<std::monostate>(layer.ffn) || (step.rows == 0 && ordinal < 0)) return absl::OkStatus();
  const Arena::Scope scope(context.arena);
  HyperRows read;
  if (hyper_ && step.rows > 0) {
    read = hyper_->Read(context, weights.ffn_hyper, step.x, step.rows);
    source = read.row;
  }
  const HiddenRows h = NormalizeGated(context, layer.ffn_norm, weights.ffn_norm, weights.ffn_norm_gate, source,
                                      step.rows, hidden, ordinal >= 0 || layer.ffn_residual.skip_normed);
  const bool direct = !hyper_ && AddsDirectly(layer);
  float* main = direct ? step.x : layer.defer_ffn ? step.deferred : Zeros(context, step.rows * hidden);
  if (ordinal >= 0) {
    std::function<void(const Routing&)> on_routing;
    if (step.batch->on_routing) {
      on_routing = [&](const Routing& routing) { step.batch->on_routing(ordinal, routing); };
    }
    MOE_RETURN_IF_ERROR(moe_[ordinal].Forward(context, placements_[ordinal], h, source, step.batch->tokens,
                                              step.state.router_carry, hidden, main, on_routing));
  } else {
    ForwardMlp(context, weights.mlp, std::get<MlpSpec>(layer.ffn), h, nullptr, main);
  }
  if (direct || step.rows == 0) return absl::OkStatus();
  if (layer.ffn_scale) {
    for (int64_t i = 0; i < step.rows * hidden; ++i) main[i] *= weights.ffn_scale[0];
  }
  NormInPlace(context, layer.ffn_own_post_norm, weights.ffn_own_post_norm, main, step.rows);
  float* out = layer.defer_ffn ? Zeros(context, step.rows * hidden) : main;
  if (layer.beside) {
    const HiddenRows beside_h = Normalize(context, layer.beside->norm, weights.beside_norm,
                                          layer.beside->after_mixer ? step.x : source, step.rows, hidden, false);
    float* beside = layer.beside->post_norm.present() ? Zeros(context, step.rows * hidden) : out;
    ForwardMlp(context, weights.beside, layer.beside->mlp, beside_h, nullptr, beside);
    if (beside != out) {
      NormInPlace(context, layer.beside->post_norm, weights.beside_post_norm, beside, step.rows);
      context.backend->AddRows({.dst = out, .src = beside, .rows = step.rows, .dim = hidden});
    }
  }
  if (layer.ffn_conv > 0) {
    const int64_t mixer_ring = layer.mixer_conv > 0 ? (layer.mixer_conv - 1) * hidden : 0;
    BranchConv(context, step, l, layer.ffn_conv, weights.ffn_conv, CacheOf(layer.mixer).tail + mixer_ring, out);
  }
  NormInPlace(context, layer.ffn_post_norm, weights.ffn_post_norm, out, step.rows);
  if (hyper_) {
    hyper_->Write(context, read, out, step.rows, step.x);
  } else {
    JoinResidual(context, layer.ffn_residual, weights.ffn_residual, h, out, step.x);
  }
  return absl::OkStatus();
}

Status Decoder::ForwardLayer(const ForwardContext& context, Step& step, int64_t l) const {
  const LayerSpec& layer = spec_->layers[l];
  const int64_t size = step.rows * spec_->hidden_size;
  const Arena::Scope scope(context.arena);
  const float* ffn_source = step.x;
  if (layer.parallel) {
    auto* before = context.arena->Allocate<float>(size);
    std::copy_n(step.x, size, before);
    ffn_source = before;
  }
  const bool add_deferred = l > 0 && spec_->layers[l - 1].defer_ffn;
  AddNgrams(context, step, l);
  MixerBranch(context, step, l);
  MOE_RETURN_IF_ERROR(FfnBranch(context, step, l, ffn_source));
  if (step.rows == 0) return absl::OkStatus();
  if (add_deferred) {
    context.backend->AddRows({.dst = step.x, .src = step.deferred, .rows = step.rows, .dim = spec_->hidden_size});
    std::fill_n(step.deferred, size, 0.0f);
  }
  if (spec_->layer_input) {
    LayerInputs(&*spec_->layer_input, weights_->layer_inputs.get(), static_cast<int64_t>(spec_->layers.size()))
        .Add(context, *weights_->layers[l].layer_input, step.layer_inputs, l, step.rows, spec_->hidden_size, step.x);
  }
  if (layer.layer_scale) {
    const float scale = weights_->layers[l].layer_scale[0];
    for (int64_t i = 0; i < size; ++i) step.x[i] *= scale;
  }
  return absl::OkStatus();
}

// A selection outlives its layer where later layers share it: its rows are there before any layer's scope. The others
// use one buffer, one after the other.
void Decoder::AllocateSelections(const ForwardContext& context, Step& step) const {
  int64_t widest = 0;
  const auto indexer_of = [&](size_t l) -> const IndexerSpec* {
    const auto* mla = std::get_if<MlaSpec>(&spec_->layers[l].mixer);
    return mla != nullptr && mla->indexer ? &*mla->indexer : nullptr;
  };
  for (size_t l = 0; l < spec_->layers.size(); ++l) {
    const IndexerSpec* indexer = indexer_of(l);
    if (indexer == nullptr) continue;
    widest = std::max(widest, indexer->top_k);
  }
  const auto is_shared = [&](size_t l) {
    for (size_t other = l + 1; other < spec_->layers.size(); ++other) {
      const IndexerSpec* indexer = indexer_of(other);
      if (indexer != nullptr && indexer->share_with_layer == static_cast<int64_t>(l)) return true;
    }
    return false;
  };
  auto* common = context.arena->Allocate<int32_t>(step.rows * widest);
  for (size_t l = 0; l < spec_->layers.size(); ++l) {
    const IndexerSpec* indexer = indexer_of(l);
    if (indexer == nullptr || indexer->share_with_layer >= 0) continue;
    auto* own = is_shared(l) ? context.arena->Allocate<int32_t>(step.rows * indexer->top_k) : common;
    step.state.selections[l] = {own, indexer->top_k};
  }
}

void Decoder::Embed(const ForwardContext& context, const DecodeBatch& batch, int64_t rows, float* x) const {
  const int64_t hidden = spec_->hidden_size;
  context.backend->Embed({.table = weights_->embed, .ids = batch.tokens, .scale = spec_->embedding_scale, .out = x});
  if (spec_->ngram_mean) {
    std::vector<int32_t> ids;
    for (const DecodeSlice& slice : batch.slices) {
      HashNgramMean(*spec_->ngram_mean, spec_->vocab_size, slice.tokens, slice.first_pos, slice.count, &ids);
    }
    AverageNgrams(context, *spec_->ngram_mean, *weights_->ngram_mean, ids, rows, hidden, x);
  }
  NormInPlace(context, spec_->embedding_norm, weights_->embed_norm, x, rows);
  if (spec_->embedding_affine) {
    context.backend->Affine({.dst = x,
                             .dst_bias = weights_->embed_bias.data(),
                             .dst_scale = weights_->embed_scale.data(),
                             .rows = rows,
                             .dim = hidden});
  }
}

StatusOr<float*> Decoder::Forward(const ForwardContext& context, const DecodeBatch& batch) const {
  const int64_t hidden = spec_->hidden_size;
  Step step;
  step.batch = &batch;
  step.rows = static_cast<int64_t>(batch.tokens.size());
  step.x = context.arena->Allocate<float>(step.rows * hidden);
  if (step.rows > 0) {
    Embed(context, batch, step.rows, step.x);
    if (spec_->layer_input) {
      step.layer_inputs =
          LayerInputs(&*spec_->layer_input, weights_->layer_inputs.get(), static_cast<int64_t>(spec_->layers.size()))
              .Read(context, batch.tokens, step.x, hidden);
    }
  }
  float* const embedded = step.x;
  if (hyper_ && step.rows > 0) {
    step.x = context.arena->Allocate<float>(step.rows * hyper_->width());
    hyper_->Spread(embedded, step.rows, step.x);
  }
  if (defers_) step.deferred = Zeros(context, step.rows * hidden);
  step.ropes = RopeTables(context, batch);
  if (const int64_t width = MaxRouterWidth(*spec_); width > 0) {
    step.state.router_carry = context.arena->Allocate<float>(step.rows * width);
  }
  step.state.selections = context.arena->AllocateObjects<KeySelection>(spec_->layers.size());
  AllocateSelections(context, step);
  step.slices = context.arena->AllocateObjects<MixerSlice>(batch.slices.size());
  int64_t row = 0;
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    const DecodeSlice& slice = batch.slices[i];
    step.slices[i] = {.row0 = row, .first_pos = slice.first_pos, .count = slice.count, .blocks = slice.blocks};
    row += slice.count;
  }
  MOE_CHECK_EQ(row, step.rows);

  for (size_t l = 0; l < spec_->layers.size(); ++l) {
    if (context.heartbeat != nullptr) context.heartbeat->fetch_add(1, std::memory_order_relaxed);
    MOE_RETURN_IF_ERROR(ForwardLayer(context, step, static_cast<int64_t>(l)));
  }
  if (!hyper_ || step.rows == 0) return step.x;
  hyper_->Head(context, weights_->hyper_head, step.x, step.rows, embedded);
  return embedded;
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
                         .w = weights_->head.matrix.get(),
                         .bias = weights_->head.bias_or_null(),
                         .out = logits,
                         .out_stride = spec_->vocab_size});
  const int64_t size = count * spec_->vocab_size;
  if (spec_->logit_scale != 1.0f) {
    for (int64_t i = 0; i < size; ++i) logits[i] *= spec_->logit_scale;
  }
  if (spec_->logit_cap > 0) {
    for (int64_t i = 0; i < size; ++i) logits[i] = spec_->logit_cap * std::tanh(logits[i] / spec_->logit_cap);
  }
  for (int64_t r = 0; spec_->head_rows > 0 && r < count; ++r) {
    std::fill(logits + r * spec_->vocab_size + spec_->head_rows, logits + (r + 1) * spec_->vocab_size,
              -std::numeric_limits<float>::infinity());
  }
}

}  // namespace moe
