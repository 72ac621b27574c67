#include "engine/model/mixers/mixers.h"
#include "engine/model/mixers/project.h"

namespace moe {
namespace {

// W_b W_a h for a projection in two factors: [rows, second.rows()].
float* ProjectTwice(const ForwardContext& context, const HiddenRows& h, const PackedMatrix& first,
                    const PackedMatrix& second, const float* bias) {
  const float* low = Project(context, h.act, h.rows, first, nullptr);
  return Project(context, RoundRows(context, low, h.rows, first.rows(), first.rows()), h.rows, second, bias);
}

}  // namespace

void GatedDeltaMixer::Forward(const ForwardContext& context, const HiddenRows& h, std::span<const MixerSlice> slices,
                              float* x) const {
  Backend& backend = *context.backend;
  const int64_t stride = weights_->in_proj.matrix->rows();
  const float* proj = Project(context, h.act, h.rows, *weights_->in_proj.matrix, nullptr);
  // Columns of `proj`: q, k, v, b, then z and a unless they come in two factors.
  const float* beta = proj + spec_->conv_dim();
  const float* rest = beta + spec_->num_v_heads;
  const float* z = rest;
  int64_t z_stride = stride;
  if (weights_->g_a != nullptr) {
    z = ProjectTwice(context, h, *weights_->g_a, *weights_->g_b.matrix, weights_->g_b.bias_or_null());
    z_stride = spec_->v_dim();
  } else {
    rest += spec_->v_dim();
  }
  const float* decay = rest;
  int64_t decay_stride = stride;
  if (weights_->f_a != nullptr) {
    decay = ProjectTwice(context, h, *weights_->f_a, *weights_->f_b, nullptr);
    decay_stride = weights_->f_b->rows();
  }
  auto* qkv = context.arena->Allocate<float>(h.rows * spec_->conv_dim());
  backend.Conv({.x = proj,
                .stride = stride,
                .channels = spec_->conv_dim(),
                .kernel = spec_->conv_kernel,
                .weight = weights_->conv_weight.data(),
                .bias = DataOrNull(weights_->conv_bias),
                .silu = true,
                .slices = slices,
                .out = qkv});
  std::byte* mixed = AllocateAct(context, h.rows, spec_->v_dim());
  backend.GatedDelta({.spec = spec_,
                      .qkv = qkv,
                      .decay = decay,
                      .beta = beta,
                      .z = z,
                      .decay_stride = decay_stride,
                      .beta_stride = stride,
                      .z_stride = z_stride,
                      .rows = h.rows,
                      .a_log = weights_->a_log.data(),
                      .dt_bias = weights_->dt_bias.data(),
                      .norm = DataOrNull(weights_->norm),
                      .slices = slices,
                      .out_act = mixed});
  ProjectOut(context, mixed, h.rows, weights_->output, x);
}

}  // namespace moe
