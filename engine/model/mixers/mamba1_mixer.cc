#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {

void Mamba1Mixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                          float* x) const {
  Backend& backend = *context.backend;
  const int64_t inner = spec_->inner;
  const float* proj = Project(context, h.act, h.rows, *weights_->in_proj.matrix, weights_->in_proj.bias_or_null());
  auto* conv = context.arena->Allocate<float>(h.rows * inner);
  std::byte* conv_act = AllocateAct(context, h.rows, inner);
  backend.Conv({.x = proj,
                .stride = 2 * inner,
                .channels = inner,
                .kernel = spec_->conv_kernel,
                .weight = weights_->conv_weight.data(),
                .bias = DataOrNull(weights_->conv_bias),
                .silu = true,
                .slices = slices,
                .out = conv,
                .out_act = conv_act});

  // [dt | B | C], each with its norm.
  const float* params = Project(context, conv_act, h.rows, *weights_->x_proj, nullptr);
  const int64_t stride = weights_->x_proj->rows();
  const float* b = params + spec_->dt_rank;
  const float* c = b + spec_->state_size;
  int64_t bc_stride = stride;
  const std::byte* low_dt = nullptr;
  if (spec_->inner_norm.present()) {
    const auto normalize = [&](const float* in, int64_t dim, const std::vector<float>& weight, float* f32,
                               std::byte* act) {
      backend.Norm({.x = in,
                    .rows = h.rows,
                    .dim = dim,
                    .stride = stride,
                    .spec = spec_->inner_norm,
                    .weight = DataOrNull(weight),
                    .out_f32 = f32,
                    .out_act = act});
    };
    std::byte* normed_dt = AllocateAct(context, h.rows, spec_->dt_rank);
    auto* normed_b = context.arena->Allocate<float>(h.rows * spec_->state_size);
    auto* normed_c = context.arena->Allocate<float>(h.rows * spec_->state_size);
    normalize(params, spec_->dt_rank, weights_->dt_norm, nullptr, normed_dt);
    normalize(b, spec_->state_size, weights_->b_norm, normed_b, nullptr);
    normalize(c, spec_->state_size, weights_->c_norm, normed_c, nullptr);
    low_dt = normed_dt;
    b = normed_b;
    c = normed_c;
    bc_stride = spec_->state_size;
  } else {
    low_dt = RoundRows(context, params, h.rows, spec_->dt_rank, stride);
  }

  std::byte* mixed = AllocateAct(context, h.rows, inner);
  backend.Mamba1({.spec = spec_,
                  .x = conv,
                  .z = proj + inner,
                  .z_stride = 2 * inner,
                  .dt = Project(context, low_dt, h.rows, *weights_->dt_proj.matrix, weights_->dt_proj.bias_or_null()),
                  .b = b,
                  .c = c,
                  .bc_stride = bc_stride,
                  .rows = h.rows,
                  .a_log = weights_->a_log.data(),
                  .d = weights_->d.data(),
                  .slices = slices,
                  .out_act = mixed});
  ProjectOut(context, mixed, h.rows, weights_->out_proj, x);
}

}  // namespace moe
