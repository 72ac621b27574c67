#include "engine/model/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "engine/model/mixers/project.h"

namespace moe {

void HyperConnection::Spread(const float* rows_in, int64_t rows, float* streams) const {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < spec_->streams; ++i)
      std::copy_n(rows_in + r * hidden_, hidden_, streams + r * width() + i * hidden_);
  }
}

const float* HyperConnection::Gates(const ForwardContext& context, const PackedHyper& weights, const std::byte* normed,
                                    int64_t rows) const {
  float* low = Project(context, normed, rows, *weights.down, nullptr);
  const auto streams = static_cast<float>(spec_->streams);
  for (int64_t i = 0; i < rows * spec_->rank; ++i) {
    const float x = low[i] / streams;
    low[i] = x / (1.0f + std::exp(-x));
  }
  return Project(context, RoundRows(context, low, rows, spec_->rank, spec_->rank), rows, *weights.up, nullptr);
}

void HyperConnection::Collapse(const ForwardContext& context, const PackedHyper& weights, const float* streams,
                               int64_t rows, const HyperRows& out) const {
  const bool gated = spec_->kind == HyperSpec::Kind::kGated;
  auto* normed = context.arena->Allocate<float>(rows * width());
  std::byte* act = gated ? AllocateAct(context, rows, width()) : nullptr;
  context.backend->Norm({.x = streams,
                         .rows = rows,
                         .dim = width(),
                         .stride = width(),
                         .spec = spec_->norm,
                         .weight = DataOrNull(weights.norm),
                         .out_f32 = normed,
                         .out_act = act});
  const float* gates = gated ? Gates(context, weights, act, rows) : nullptr;
  float* mixes = nullptr;
  if (weights.fn != nullptr) {
    // In float32 whatever the model's type: these weights steer the whole residual.
    mixes = context.arena->Allocate<float>(rows * weights.fn->rows());
    context.backend->Gemm({.a = {reinterpret_cast<const std::byte*>(normed), DType::kF32, rows, width(), width()},
                           .w = weights.fn.get(),
                           .out = mixes,
                           .out_stride = weights.fn->rows()});
  }
  context.backend->HyperRead({.spec = spec_,
                              .streams = gated ? normed : streams,
                              .mixes = mixes,
                              .gates = gates,
                              .base = DataOrNull(weights.base),
                              .scale = DataOrNull(weights.scale),
                              .rows = rows,
                              .dim = hidden_,
                              .out = out.row,
                              .post = out.post,
                              .comb = out.comb});
}

HyperRows HyperConnection::Read(const ForwardContext& context, const PackedHyper& weights, const float* streams,
                                int64_t rows) const {
  const int64_t n = spec_->streams;
  HyperRows out{.row = context.arena->Allocate<float>(rows * hidden_),
                .post = context.arena->Allocate<float>(rows * n)};
  if (spec_->kind == HyperSpec::Kind::kManifold) out.comb = context.arena->Allocate<float>(rows * n * n);
  const Arena::Scope scope(context.arena);
  Collapse(context, weights, streams, rows, out);
  return out;
}

void HyperConnection::Write(const ForwardContext& context, const HyperRows& read, const float* y, int64_t rows,
                            float* streams) const {
  context.backend->HyperWrite({.streams_per_row = spec_->streams,
                               .y = y,
                               .post = read.post,
                               .comb = read.comb,
                               .rows = rows,
                               .dim = hidden_,
                               .streams = streams});
}

void HyperConnection::Head(const ForwardContext& context, const PackedHyper& weights, const float* streams,
                           int64_t rows, float* out) const {
  const Arena::Scope scope(context.arena);
  Collapse(context, weights, streams, rows, {.row = out});
}

}  // namespace moe
