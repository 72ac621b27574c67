#include "engine/moe/moe_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/device/data_or_null.h"

namespace moe {
namespace {

RowsView ActRows(const Backend& backend, const std::byte* data, int64_t rows, int64_t cols) {
  return {data, backend.act_dtype(), rows, cols, cols};
}

RowsView FloatRows(const float* data, int64_t rows, int64_t cols) {
  return {reinterpret_cast<const std::byte*>(data), DType::kF32, rows, cols, cols};
}

// What a router of several layers projects its logits from: [rows, width].
const float* RouterMlp(const ForwardContext& context, const RouterMlpSpec& spec, const PackedRouterMlp& w,
                       const float* x, int64_t rows, float* carry) {
  const auto linear = [&](const float* in, const PackedMatrix& matrix, const std::vector<float>& bias) {
    auto* out = context.arena->Allocate<float>(rows * matrix.rows());
    context.backend->Gemm({.a = FloatRows(in, rows, matrix.cols()),
                           .w = &matrix,
                           .bias = bias.data(),
                           .out = out,
                           .out_stride = matrix.rows()});
    return out;
  };
  float* r = linear(x, *w.down, w.down_bias);
  if (spec.carries) {
    context.backend->Affine({.dst = r, .src = carry, .src_scale = w.carry.data(), .rows = rows, .dim = spec.width});
  }
  std::copy_n(r, rows * spec.width, carry);
  context.backend->Norm({.x = r,
                         .rows = rows,
                         .dim = spec.width,
                         .stride = spec.width,
                         .spec = spec.norm,
                         .weight = DataOrNull(w.norm),
                         .out_f32 = r});
  for (const auto& [matrix, bias] : {std::pair(w.fc1.get(), &w.fc1_bias), std::pair(w.fc2.get(), &w.fc2_bias)}) {
    r = linear(r, *matrix, *bias);
    context.backend->Activate({.activation = Activation::kGeluErf, .x = r, .count = rows * spec.width});
  }
  return r;
}

}  // namespace

Routing Router::Forward(const ForwardContext& context, const HiddenRows& h, const float* residual,
                        std::span<const int32_t> tokens, float* carry) const {
  const RouterSpec& spec = spec_->router;
  const int64_t choices = spec_->num_choices();
  const int64_t hidden = spec.mlp ? weights_->router_mlp->down->cols() : weights_->router->cols();
  float* sink_weights = spec.sinks > 0 ? context.arena->Allocate<float>(spec.sinks * h.rows) : nullptr;
  auto* logits = context.arena->Allocate<float>(h.rows * choices);
  auto* ids = context.arena->Allocate<int32_t>(h.rows * spec_->top_k);
  auto* weights = context.arena->Allocate<float>(h.rows * spec_->top_k);
  if (h.rows > 0) {
    const float* x = spec.reads_residual ? residual : h.f32;
    if (spec.input_norm.present()) {
      auto* normed = context.arena->Allocate<float>(h.rows * hidden);
      context.backend->Norm({.x = x,
                             .rows = h.rows,
                             .dim = hidden,
                             .stride = hidden,
                             .spec = spec.input_norm,
                             .weight = DataOrNull(weights_->router_norm),
                             .out_f32 = normed});
      x = normed;
    }
    const float* scored = spec.mlp ? RouterMlp(context, *spec.mlp, *weights_->router_mlp, x, h.rows, carry) : x;
    context.backend->Gemm({.a = FloatRows(scored, h.rows, weights_->router->cols()),
                           .w = weights_->router.get(),
                           .out = logits,
                           .out_stride = choices});
    int32_t* given = nullptr;
    if (spec.by_token) {
      given = context.arena->Allocate<int32_t>(h.rows * spec_->top_k);
      for (int64_t r = 0; r < h.rows; ++r) {
        const int64_t token = tokens[static_cast<size_t>(r)];
        std::copy_n(weights_->table.data() + token * spec_->top_k, spec_->top_k, given + r * spec_->top_k);
      }
    }
    context.backend->Route({.spec = &spec,
                            .num_experts = choices,
                            .top_k = spec_->top_k,
                            .logits = logits,
                            .logit_bias = DataOrNull(weights_->logit_bias),
                            .select_bias = DataOrNull(weights_->select_bias),
                            .expert_scale = DataOrNull(weights_->expert_scale),
                            .given = given,
                            .rows = h.rows,
                            .ids = ids,
                            .weights = weights});
    if (spec.sinks > 0) {
      auto* sink_logits = context.arena->Allocate<float>(h.rows * spec.sinks);
      context.backend->Gemm({.a = FloatRows(x, h.rows, hidden),
                             .w = weights_->sinks.get(),
                             .out = sink_logits,
                             .out_stride = spec.sinks});
      context.backend->SinkWeights({.logits = logits,
                                    .sink_logits = sink_logits,
                                    .ids = ids,
                                    .num_experts = choices,
                                    .sinks = spec.sinks,
                                    .top_k = spec_->top_k,
                                    .rows = h.rows,
                                    .scale = spec.scale * weights_->weight_scale,
                                    .weights = weights,
                                    .sink_weights = sink_weights});
    }
    for (int64_t i = 0; spec_->skip_experts > 0 && i < h.rows * spec_->top_k; ++i) {
      if (ids[i] < choices - spec_->skip_experts) continue;
      ids[i] = 0;
      weights[i] = 0;
    }
  }
  return {ids, weights, h.rows, spec_->top_k, sink_weights};
}

const std::byte* LatentProjection::Down(const ForwardContext& context, const HiddenRows& h) const {
  const PackedMatrix& w = *weights_->latent_down;
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  std::byte* latent = context.arena->AllocateBytes(h.rows * w.rows() * element);
  if (h.rows == 0) return latent;
  const Arena::Scope scope(context.arena);
  auto* f32 = context.arena->Allocate<float>(h.rows * w.rows());
  context.backend->Gemm({.a = ActRows(*context.backend, h.act, h.rows, w.cols()),
                         .w = &w,
                         .bias = DataOrNull(weights_->latent_down_bias),
                         .out = f32,
                         .out_stride = w.rows()});
  context.backend->Round({.x = f32, .rows = h.rows, .dim = w.rows(), .stride = w.rows(), .out_act = latent});
  return latent;
}

void LatentProjection::Up(const ForwardContext& context, const std::byte* latent, int64_t rows, float* out) const {
  const PackedMatrix& w = *weights_->latent_up;
  context.backend->Gemm({.a = ActRows(*context.backend, latent, rows, w.cols()),
                         .w = &w,
                         .bias = DataOrNull(weights_->latent_up_bias),
                         .out = out,
                         .out_stride = w.rows(),
                         .accumulate = true});
}

const std::byte* RoutedExperts::Forward(const ForwardContext& context, const Dispatcher::Work& work) const {
  const PackedExperts& experts = *weights_->experts.experts;
  const auto rows = static_cast<int64_t>(work.rows.size());
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  std::byte* out = context.arena->AllocateBytes(rows * experts.width() * element);
  if (rows == 0) return out;
  auto* groups = context.arena->Allocate<ExpertGroup>(static_cast<int64_t>(work.groups.size()));
  for (size_t g = 0; g < work.groups.size(); ++g) {
    groups[g] = {work.groups[g].expert, work.groups[g].begin, work.groups[g].end};
  }
  context.backend->Experts({.experts = &experts,
                            .activation = spec_->expert.activation,
                            .limit = spec_->expert.limit,
                            .alpha = spec_->expert.alpha,
                            .gate_bias = DataOrNull(weights_->experts.gate_bias),
                            .up_bias = DataOrNull(weights_->experts.up_bias),
                            .down_bias = DataOrNull(weights_->experts.down_bias),
                            .rows = work.rows,
                            .groups = {groups, work.groups.size()},
                            .out_dtype = context.backend->act_dtype(),
                            .out = out});
  return out;
}

void ForwardMlp(const ForwardContext& context, const PackedMlp& mlp, const MlpSpec& spec, const HiddenRows& h,
                const float* gate_logits, float* out) {
  if (h.rows == 0) return;
  const Arena::Scope scope(context.arena);
  const int64_t width = mlp.experts->width();
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  auto* rows = context.arena->Allocate<const std::byte*>(h.rows);
  for (int64_t r = 0; r < h.rows; ++r) rows[r] = h.act + r * width * element;
  const ExpertGroup group{0, 0, static_cast<int32_t>(h.rows)};
  auto* result = context.arena->Allocate<float>(h.rows * width);
  context.backend->Experts({.experts = mlp.experts.get(),
                            .activation = spec.activation,
                            .limit = spec.limit,
                            .alpha = spec.alpha,
                            .gate_bias = DataOrNull(mlp.gate_bias),
                            .up_bias = DataOrNull(mlp.up_bias),
                            .down_bias = DataOrNull(mlp.down_bias),
                            .rows = {rows, static_cast<size_t>(h.rows)},
                            .groups = {&group, 1},
                            .out_dtype = DType::kF32,
                            .out = reinterpret_cast<std::byte*>(result)});
  context.backend->AddRows({.dst = out,
                            .src = result,
                            .gate = gate_logits,
                            .sigmoid_gate = gate_logits != nullptr,
                            .rows = h.rows,
                            .dim = width});
}

void SharedExperts::Forward(const ForwardContext& context, const HiddenRows& h, const float* sink_weights,
                            float* out) const {
  if (sink_weights != nullptr) return AddWeighted(context, h, sink_weights, out);
  const Arena::Scope scope(context.arena);
  float* gate = nullptr;
  if (weights_->shared_gate != nullptr && h.rows > 0) {
    gate = context.arena->Allocate<float>(h.rows);
    context.backend->Gemm({.a = FloatRows(h.f32, h.rows, weights_->shared_gate->cols()),
                           .w = weights_->shared_gate.get(),
                           .out = gate,
                           .out_stride = 1});
  }
  ForwardMlp(context, weights_->shared, spec_->shared->mlp, h, gate, out);
}

void SharedExperts::AddWeighted(const ForwardContext& context, const HiddenRows& h, const float* weights,
                                float* out) const {
  const Arena::Scope scope(context.arena);
  const PackedExperts& experts = *weights_->shared.experts;
  const int64_t width = experts.width();
  const int64_t row_bytes = width * static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  const int64_t slots = experts.num_experts() * h.rows;
  auto* rows = context.arena->Allocate<const std::byte*>(slots);
  for (int64_t i = 0; i < slots; ++i) rows[i] = h.act + i % h.rows * row_bytes;
  const auto groups = context.arena->AllocateObjects<ExpertGroup>(static_cast<size_t>(experts.num_experts()));
  for (int64_t e = 0; e < experts.num_experts(); ++e) {
    const int64_t begin = e * h.rows;
    groups[static_cast<size_t>(e)] = {static_cast<int32_t>(e), static_cast<int32_t>(begin),
                                      static_cast<int32_t>(begin + h.rows)};
  }
  auto* results = context.arena->Allocate<float>(slots * width);
  const MlpSpec& mlp = spec_->shared->mlp;
  context.backend->Experts({.experts = &experts,
                            .activation = mlp.activation,
                            .limit = mlp.limit,
                            .alpha = mlp.alpha,
                            .rows = {rows, static_cast<size_t>(slots)},
                            .groups = groups,
                            .out_dtype = DType::kF32,
                            .out = reinterpret_cast<std::byte*>(results)});
  for (int64_t e = 0; e < experts.num_experts(); ++e) {
    context.backend->AddRows(
        {.dst = out, .src = results + e * h.rows * width, .gate = weights + e * h.rows, .rows = h.rows, .dim = width});
  }
}

MoERunner::MoERunner(const MoeSpec* spec, const PackedMoe* weights, int64_t layer)
    : spec_(spec),
      weights_(weights),
      layer_(layer),
      router_(spec, weights),
      latent_(weights),
      routed_(spec, weights),
      shared_(spec, weights) {}

Status MoERunner::ForwardExperts(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h,
                                 const Routing& route, int64_t width, float* out) const {
  const DType act = context.backend->act_dtype();
  const int64_t top_k = spec_->top_k;
  const int64_t row_bytes = width * static_cast<int64_t>(DTypeSize(act));
  const std::byte* x = latent_.present() ? latent_.Down(context, h) : h.act;
  int64_t rows = h.rows;
  int64_t slots_per_row = top_k;
  if (spec_->weight_on_input) {
    rows = h.rows * top_k;
    slots_per_row = 1;
    std::byte* weighted = context.arena->AllocateBytes(rows * row_bytes);
    if (rows > 0) {
      context.backend->Round({.x = h.f32,
                              .row_scale = route.weights,
                              .repeat = top_k,
                              .rows = rows,
                              .dim = width,
                              .stride = width,
                              .out_act = weighted});
    }
    x = weighted;
  }
  const int32_t* ids = route.ids;
  const bool unasked = spec_->zero_experts > 0 || spec_->skip_experts > 0;
  if (unasked) {
    auto* asked = context.arena->Allocate<int32_t>(rows * top_k);
    for (int64_t i = 0; i < rows * top_k; ++i) {
      const bool skipped = spec_->skip_experts > 0 && route.weights[i] == 0;
      asked[i] = ids[i] < spec_->num_experts && !skipped ? ids[i] : -1;
    }
    ids = asked;
  }

  MOE_ASSIGN_OR_RETURN(
      const Dispatcher::Work work,
      context.dispatcher->Dispatch(placement, x, rows, row_bytes, {ids, static_cast<size_t>(rows * slots_per_row)},
                                   slots_per_row, layer_, context.most_rows * (top_k / slots_per_row)));
  const std::byte* results = routed_.Forward(context, work);
  MOE_ASSIGN_OR_RETURN(auto slot_rows, context.dispatcher->Return(results));
  if (h.rows == 0) return absl::OkStatus();
  if (unasked) {
    // An identity expert's result is its input; what is skipped has the weight 0.
    auto* filled = context.arena->Allocate<const std::byte*>(h.rows * top_k);
    for (int64_t i = 0; i < h.rows * top_k; ++i) filled[i] = ids[i] < 0 ? x + i / top_k * row_bytes : slot_rows[i];
    slot_rows = {filled, slot_rows.size()};
  }
  CombineOp combine{.rows = h.rows,
                    .top_k = top_k,
                    .dim = width,
                    .slot_dtype = act,
                    .slot_rows = slot_rows,
                    .weights = spec_->weight_on_input ? nullptr : route.weights,
                    .scale = spec_->router.sinks > 0 ? 1.0f : spec_->router.scale,
                    .bias = DataOrNull(weights_->output_bias)};
  if (latent_.present()) {
    combine.out_act = context.arena->AllocateBytes(h.rows * row_bytes);
    context.backend->Combine(combine);
    latent_.Up(context, combine.out_act, h.rows, out);
  } else {
    combine.out_f32 = out;
    context.backend->Combine(combine);
  }
  return absl::OkStatus();
}

Status MoERunner::Forward(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h,
                          const float* residual, std::span<const int32_t> tokens, float* carry, int64_t hidden,
                          float* out, const std::function<void(const Routing&)>& on_routing) const {
  const Arena::Scope scope(context.arena);
  const Routing route = router_.Forward(context, h, residual, tokens, carry);
  if (on_routing) on_routing(route);
  MOE_RETURN_IF_ERROR(ForwardExperts(context, placement, h, route, spec_->expert_width(hidden), out));
  if (h.rows > 0 && shared_.present()) shared_.Forward(context, h, route.sink_weights, out);
  return absl::OkStatus();
}

}  // namespace moe
