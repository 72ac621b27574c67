#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {

void LightningMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                             const RopeTable& rope, float* x) const {
  const int64_t width = spec_->num_heads * spec_->head_dim;
  const int64_t stride = weights_->in_proj.matrix->rows();
  const float* proj = Project(context, h.act, h.rows, *weights_->in_proj.matrix, nullptr);  // [q | k | v | gate]
  std::byte* mixed = AllocateAct(context, h.rows, width);
  context.backend->Lightning({.spec = spec_,
                              .qkv = proj,
                              .gate = proj + 3 * width,
                              .qkv_stride = stride,
                              .gate_stride = stride,
                              .rows = h.rows,
                              .q_norm = DataOrNull(weights_->q_norm),
                              .k_norm = DataOrNull(weights_->k_norm),
                              .norm = DataOrNull(weights_->norm),
                              .cos = rope.cos,
                              .sin = rope.sin,
                              .slices = slices,
                              .out_act = mixed});
  ProjectOut(context, mixed, h.rows, weights_->output, x);
}

}  // namespace moe
