#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {

void ShortConvMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                             float* x) const {
  const int64_t channels = spec_->channels;
  // [B | C | x]
  const float* proj = Project(context, h.act, h.rows, *weights_->in_proj.matrix, weights_->in_proj.bias_or_null());
  std::byte* mixed = AllocateAct(context, h.rows, channels);
  context.backend->Conv({.x = proj + 2 * channels,
                         .stride = 3 * channels,
                         .channels = channels,
                         .kernel = spec_->kernel,
                         .weight = weights_->conv_weight.data(),
                         .bias = DataOrNull(weights_->conv_bias),
                         .in_gate = proj,
                         .out_gate = proj + channels,
                         .slices = slices,
                         .out_act = mixed});
  ProjectOut(context, mixed, h.rows, weights_->out_proj, x);
}

}  // namespace moe
