#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {

void CompressedAttentionMixer::Forward(const ForwardContext& context, const HiddenRows& h,
                                       std::span<const MixerSlice> slices, const KvLayer& kv, const RopeTable& rope,
                                       float* x) const {
  Backend& backend = *context.backend;
  const int64_t inputs = weights_->in_proj->rows();
  const int64_t heads_dim = spec_->num_heads * spec_->head_dim;
  const float* projected = Project(context, h.act, h.rows, *weights_->in_proj, nullptr);
  std::byte* latent = AllocateAct(context, h.rows, spec_->q_lora);
  backend.Norm({.x = projected,
                .rows = h.rows,
                .dim = spec_->q_lora,
                .stride = inputs,
                .spec = spec_->norm,
                .weight = DataOrNull(weights_->q_a_norm),
                .out_act = latent});
  backend.CompressedKeys({.spec = spec_,
                          .kv = projected + spec_->q_lora,
                          .stride = inputs,
                          .rows = h.rows,
                          .kv_norm = DataOrNull(weights_->kv_norm),
                          .bias = DataOrNull(weights_->bias),
                          .norm = DataOrNull(weights_->norm),
                          .index_bias = DataOrNull(weights_->index_bias),
                          .index_norm = DataOrNull(weights_->index_norm),
                          .cos = rope.cos,
                          .sin = rope.sin,
                          .slices = slices,
                          .kv_layer = kv});
  const float* q = Project(context, latent, h.rows, *weights_->q_b, nullptr);
  int32_t* entries = nullptr;
  if (spec_->indexer && ChoosesEntries(slices)) {
    const PackedMatrix& w = *weights_->index_weights;
    auto* head_weights = context.arena->Allocate<float>(h.rows * w.rows());
    backend.Gemm({.a = {reinterpret_cast<const std::byte*>(h.f32), DType::kF32, h.rows, w.cols(), w.cols()},
                  .w = &w,
                  .out = head_weights,
                  .out_stride = w.rows()});
    entries = context.arena->Allocate<int32_t>(h.rows * spec_->indexer->top_k);
    backend.CompressedIndex({.spec = spec_,
                             .q = Project(context, latent, h.rows, *weights_->index_q, nullptr),
                             .weights = head_weights,
                             .cos = rope.cos,
                             .sin = rope.sin,
                             .slices = slices,
                             .kv = kv,
                             .entries = entries});
  }
  std::byte* mixed = AllocateAct(context, h.rows, heads_dim);
  backend.CompressedAttention({.spec = spec_,
                               .q = q,
                               .sinks = DataOrNull(weights_->sinks),
                               .cos = rope.cos,
                               .sin = rope.sin,
                               .entries = entries,
                               .slices = slices,
                               .kv = kv,
                               .out_act = mixed});
  ProjectOut(context, OutputLatents(context, mixed, h.rows), h.rows, weights_->o_b, x);
}

bool CompressedAttentionMixer::ChoosesEntries(std::span<const MixerSlice> slices) const {
  for (const MixerSlice& slice : slices) {
    if ((slice.first_pos + slice.count) / spec_->compressor->rate > spec_->indexer->top_k) return true;
  }
  return false;
}

const std::byte* CompressedAttentionMixer::OutputLatents(const ForwardContext& context, const std::byte* mixed,
                                                         int64_t rows) const {
  const DType act = context.backend->act_dtype();
  const int64_t heads_dim = spec_->num_heads * spec_->head_dim;
  const int64_t group_dim = heads_dim / spec_->output_groups;
  const int64_t latents = spec_->output_groups * spec_->output_rank;
  auto* out = context.arena->Allocate<float>(rows * latents);
  for (int64_t g = 0; g < spec_->output_groups; ++g) {
    const std::byte* group = mixed + g * group_dim * static_cast<int64_t>(DTypeSize(act));
    context.backend->Gemm({.a = {group, act, rows, group_dim, heads_dim},
                           .w = weights_->o_a[static_cast<size_t>(g)].get(),
                           .out = out + g * spec_->output_rank,
                           .out_stride = latents});
  }
  return RoundRows(context, out, rows, latents, latents);
}

}  // namespace moe
