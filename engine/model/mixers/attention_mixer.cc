#include "engine/model/mixers/mixers.h"

namespace moe {

void AttentionMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                             const KvLayer& kv, const RopeTable& rope, float* x) const {
  Backend& backend = *context.backend;
  const DType act = backend.act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  const int64_t qkv_dim = weights_->qkv.matrix->rows();
  const int64_t hidden = weights_->qkv.matrix->cols();
  const int64_t mixed_dim = spec_->num_heads * spec_->v_head_dim;
  auto* qkv = context.arena->Allocate<float>(h.rows * qkv_dim);
  std::byte* q = context.arena->AllocateBytes(h.rows * spec_->num_heads * spec_->head_dim * element);
  std::byte* mixed = context.arena->AllocateBytes(h.rows * mixed_dim * element);
  backend.Gemm({.a = {h.act, act, h.rows, hidden, hidden},
                .w = weights_->qkv.matrix.get(),
                .bias = weights_->qkv.bias_or_null(),
                .out = qkv,
                .out_stride = qkv_dim});
  backend.Qkv({.spec = spec_,
               .qkv = qkv,
               .rows = h.rows,
               .q_norm = weights_->q_norm.data(),
               .k_norm = weights_->k_norm.data(),
               .cos = rope.cos,
               .sin = rope.sin,
               .slices = slices,
               .kv = kv,
               .q_out = q});
  backend.Attention({.spec = spec_, .q = q, .slices = slices, .kv = kv, .out_act = mixed});
  backend.Gemm({.a = {mixed, act, h.rows, mixed_dim, mixed_dim},
                .w = weights_->output.matrix.get(),
                .bias = weights_->output.bias_or_null(),
                .out = x,
                .out_stride = weights_->output.matrix->rows(),
                .accumulate = true});
}

}  // namespace moe
