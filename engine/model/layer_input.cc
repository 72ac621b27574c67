#include "engine/model/layer_input.h"

#include "engine/model/mixers/project.h"

namespace moe {

const float* LayerInputs::Read(const ForwardContext& context, std::span<const int32_t> tokens, const float* embedded,
                               int64_t hidden) const {
  Backend& backend = *context.backend;
  const auto rows = static_cast<int64_t>(tokens.size());
  auto* inputs = context.arena->Allocate<float>(rows * width_);
  const Arena::Scope scope(context.arena);
  float* projected =
      Project(context, RoundRows(context, embedded, rows, hidden, hidden), rows, *weights_->projection, nullptr);
  backend.Norm({.x = projected,
                .rows = rows * width_ / spec_->dim,
                .dim = spec_->dim,
                .stride = spec_->dim,
                .spec = spec_->projection_norm,
                .weight = DataOrNull(weights_->norm),
                .out_f32 = projected});
  backend.Embed({.table = weights_->table, .ids = tokens, .scale = spec_->table_scale, .out = inputs});
  backend.AddRows(
      {.dst = inputs, .src = projected, .skip = spec_->scale, .scale = spec_->scale, .rows = rows, .dim = width_});
  return inputs;
}

void LayerInputs::Add(const ForwardContext& context, const PackedLayerInput& weights, const float* inputs, int64_t l,
                      int64_t rows, int64_t hidden, float* x) const {
  Backend& backend = *context.backend;
  const Arena::Scope scope(context.arena);
  const int64_t dim = spec_->dim;
  float* gated = Project(context, RoundRows(context, x, rows, hidden, hidden), rows, *weights.gate, nullptr);
  backend.Activate({.activation = spec_->activation, .x = gated, .count = rows * dim});
  for (int64_t r = 0; r < rows; ++r) {
    const float* own = inputs + r * width_ + l * dim;
    for (int64_t d = 0; d < dim; ++d) gated[r * dim + d] *= own[d];
  }
  float* out = Project(context, RoundRows(context, gated, rows, dim, dim), rows, *weights.projection, nullptr);
  backend.Norm({.x = out,
                .rows = rows,
                .dim = hidden,
                .stride = hidden,
                .spec = spec_->norm,
                .weight = DataOrNull(weights.norm),
                .out_f32 = out});
  backend.AddRows({.dst = x, .src = out, .rows = rows, .dim = hidden});
}

}  // namespace moe
