#include <optional>

#include "engine/model/mixers/head_experts.h"
#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"
#include "engine/model/mixers/qkv_rows.h"

namespace moe {
namespace {

// The keys that each row from spec.first_choice() on may read; none has to choose: without positions.
KeySelection ChooseBlocks(const ForwardContext& context, const AttentionSpec& attention,
                          const PackedBlockIndexer& weights, const HiddenRows& h, std::span<const MixerSlice> slices,
                          const KvLayer& kv, const RopeTable& rope) {
  const BlockIndexerSpec& spec = *attention.block_indexer;
  KeySelection selection{.width = spec.width(), .groups = spec.groups()};
  if (!SplitAt(context.arena, slices, spec.first_choice()).from.empty()) {
    selection.positions = context.arena->Allocate<int32_t>(h.rows * selection.groups * selection.width);
  }
  auto* qk = context.arena->Allocate<float>(h.rows * weights.qk->rows());
  // From the unrounded rows: these scores decide.
  context.backend->Gemm(
      {.a = {reinterpret_cast<const std::byte*>(h.f32), DType::kF32, h.rows, weights.qk->cols(), weights.qk->cols()},
       .w = weights.qk.get(),
       .out = qk,
       .out_stride = weights.qk->rows()});
  context.backend->BlockIndexer({.spec = &spec,
                                 .rope = attention.rope ? &*attention.rope : nullptr,
                                 .qk = qk,
                                 .rows = h.rows,
                                 .q_norm = DataOrNull(weights.q_norm),
                                 .k_norm = DataOrNull(weights.k_norm),
                                 .cos = rope.cos,
                                 .sin = rope.sin,
                                 .slices = slices,
                                 .kv = kv,
                                 .positions = selection.positions});
  return selection;
}

// Positions below `border` read everything before them, whatever was chosen; whether one does depends on the position
// alone, so both ways of computing attention can be used side by side.
void AttendSelected(const ForwardContext& context, AttentionOp op, const KeySelection& selection, int64_t border) {
  Backend* backend = context.backend;
  const SplitSlices split = SplitAt(context.arena, op.slices, border);
  op.slices = split.below;
  if (!op.slices.empty()) backend->Attention(op);
  op.slices = split.from;
  op.selection = &selection;
  if (!op.slices.empty()) backend->Attention(op);
}

}  // namespace

void AttentionMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                             const KvLayer& kv, const RopeTable& rope, float* x) const {
  Backend& backend = *context.backend;
  const DType act = backend.act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  const int64_t hidden = weights_->qkv.matrix->cols();
  const int64_t mixed_dim = spec_->num_heads * spec_->v_head_dim;
  std::byte* q = context.arena->AllocateBytes(h.rows * spec_->num_heads * spec_->head_dim * element);
  std::byte* mixed = context.arena->AllocateBytes(h.rows * mixed_dim * element);
  std::optional<HeadExperts> heads;
  if (spec_->head_experts) heads.emplace(context, *spec_, *weights_, h);
  const QkvRows qkv = heads        ? heads->ProjectQkv()
                      : spec_->cca ? CcaQkv(context, *spec_, *weights_, h, slices, kv)
                                   : ProjectQkv(context, *spec_, *weights_, h, slices, kv);
  backend.Qkv({.spec = spec_,
               .qkv = qkv.data,
               .stride = qkv.stride,
               .rows = h.rows,
               .q_norm = DataOrNull(weights_->q_norm),
               .k_norm = DataOrNull(weights_->k_norm),
               .v_norm = DataOrNull(weights_->v_norm),
               .cos = rope.cos,
               .sin = rope.sin,
               .slices = slices,
               .kv = kv,
               .q_out = q});
  const AttentionOp attend{.spec = spec_,
                           .q = q,
                           .sinks = DataOrNull(weights_->sinks),
                           .relative = qkv.relative,
                           .relative_stride = qkv.stride,
                           .relative_bias = DataOrNull(weights_->relative_bias),
                           .slices = slices,
                           .kv = kv,
                           .out_act = mixed};
  if (spec_->block_indexer) {
    const KeySelection selection = ChooseBlocks(context, *spec_, *weights_->block_indexer, h, slices, kv, rope);
    AttendSelected(context, attend, selection, spec_->block_indexer->first_choice());
  } else {
    backend.Attention(attend);
  }
  if (weights_->gate != nullptr) {
    const int64_t gates = weights_->gate->rows();
    auto* gate = context.arena->Allocate<float>(h.rows * gates);
    backend.Gemm({.a = {h.act, act, h.rows, hidden, hidden},
                  .w = weights_->gate.get(),
                  .bias = DataOrNull(weights_->gate_bias),
                  .out = gate,
                  .out_stride = gates});
    backend.Gate({.kind = spec_->gate,
                  .rows = h.rows,
                  .heads = spec_->num_heads,
                  .head_dim = spec_->v_head_dim,
                  .gate = gate,
                  .gate_stride = gates,
                  .head_bias = DataOrNull(weights_->gate_head_bias),
                  .act = mixed});
  }
  if (heads) return heads->AddOutput(mixed, x);
  backend.Gemm({.a = {mixed, act, h.rows, mixed_dim, mixed_dim},
                .w = weights_->output.matrix.get(),
                .bias = weights_->output.bias_or_null(),
                .out = x,
                .out_stride = weights_->output.matrix->rows(),
                .accumulate = true});
}

}  // namespace moe
