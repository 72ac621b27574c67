#include "engine/model/mixers/mixers.h"

namespace moe {

void Mamba2Mixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                          float* x) const {
  Backend& backend = *context.backend;
  const DType act = backend.act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  const int64_t hidden = weights_->in_proj.matrix->cols();
  auto* proj = context.arena->Allocate<float>(h.rows * spec_->in_proj_rows());
  std::byte* mixed = context.arena->AllocateBytes(h.rows * spec_->inner() * element);
  backend.Gemm({.a = {h.act, act, h.rows, hidden, hidden},
                .w = weights_->in_proj.matrix.get(),
                .bias = weights_->in_proj.bias_or_null(),
                .out = proj,
                .out_stride = spec_->in_proj_rows()});
  backend.Mamba2({.spec = spec_,
                  .proj = proj,
                  .rows = h.rows,
                  .conv_weight = weights_->conv_weight.data(),
                  .conv_bias = weights_->conv_bias.empty() ? nullptr : weights_->conv_bias.data(),
                  .dt_bias = weights_->dt_bias.data(),
                  .a_log = weights_->a_log.data(),
                  .d = weights_->d.data(),
                  .norm = weights_->norm.data(),
                  .slices = slices,
                  .out_act = mixed});
  backend.Gemm({.a = {mixed, act, h.rows, spec_->inner(), spec_->inner()},
                .w = weights_->out_proj.matrix.get(),
                .bias = weights_->out_proj.bias_or_null(),
                .out = x,
                .out_stride = hidden,
                .accumulate = true});
}

}  // namespace moe
