#include "engine/moe/moe_runner.h"

#include <vector>

namespace moe {
namespace {

RowsView ActRows(const Backend& backend, const std::byte* data, int64_t rows, int64_t cols) {
  return {data, backend.act_dtype(), rows, cols, cols};
}

RowsView FloatRows(const float* data, int64_t rows, int64_t cols) {
  return {reinterpret_cast<const std::byte*>(data), DType::kF32, rows, cols, cols};
}

}  // namespace

Routing Router::Forward(const ForwardContext& context, const HiddenRows& h) const {
  const int64_t num_experts = spec_->num_experts;
  auto* logits = context.arena->Allocate<float>(h.rows * num_experts);
  auto* ids = context.arena->Allocate<int32_t>(h.rows * spec_->top_k);
  auto* weights = context.arena->Allocate<float>(h.rows * spec_->top_k);
  if (h.rows > 0) {
    context.backend->Gemm({.a = FloatRows(h.f32, h.rows, weights_->router->cols()),
                           .w = weights_->router.get(),
                           .out = logits,
                           .out_stride = num_experts});
    context.backend->Route({.spec = &spec_->router,
                            .num_experts = num_experts,
                            .top_k = spec_->top_k,
                            .logits = logits,
                            .logit_bias = weights_->logit_bias.empty() ? nullptr : weights_->logit_bias.data(),
                            .select_bias = weights_->select_bias.empty() ? nullptr : weights_->select_bias.data(),
                            .rows = h.rows,
                            .ids = ids,
                            .weights = weights});
  }
  return {ids, weights, h.rows, spec_->top_k};
}

const std::byte* LatentProjection::Down(const ForwardContext& context, const HiddenRows& h) const {
  const PackedMatrix& w = *weights_->latent_down;
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  std::byte* latent = context.arena->AllocateBytes(h.rows * w.rows() * element);
  if (h.rows == 0) return latent;
  const Arena::Scope scope(context.arena);
  auto* f32 = context.arena->Allocate<float>(h.rows * w.rows());
  context.backend->Gemm(
      {.a = ActRows(*context.backend, h.act, h.rows, w.cols()), .w = &w, .out = f32, .out_stride = w.rows()});
  context.backend->Round({.x = f32, .rows = h.rows, .dim = w.rows(), .stride = w.rows(), .out_act = latent});
  return latent;
}

void LatentProjection::Up(const ForwardContext& context, const std::byte* latent, int64_t rows, float* out) const {
  const PackedMatrix& w = *weights_->latent_up;
  context.backend->Gemm({.a = ActRows(*context.backend, latent, rows, w.cols()),
                         .w = &w,
                         .out = out,
                         .out_stride = w.rows(),
                         .accumulate = true});
}

const std::byte* RoutedExperts::Forward(const ForwardContext& context, const Dispatcher::Work& work) const {
  const PackedExperts& experts = *weights_->experts;
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
                            .rows = work.rows,
                            .groups = {groups, work.groups.size()},
                            .out_dtype = context.backend->act_dtype(),
                            .out = out});
  return out;
}

void ForwardMlp(const ForwardContext& context, const PackedExperts& mlp, Activation activation, const HiddenRows& h,
                const float* gate_logits, float* out) {
  if (h.rows == 0) return;
  const Arena::Scope scope(context.arena);
  const int64_t width = mlp.width();
  const auto element = static_cast<int64_t>(DTypeSize(context.backend->act_dtype()));
  auto* rows = context.arena->Allocate<const std::byte*>(h.rows);
  for (int64_t r = 0; r < h.rows; ++r) rows[r] = h.act + r * width * element;
  const ExpertGroup group{0, 0, static_cast<int32_t>(h.rows)};
  auto* result = context.arena->Allocate<float>(h.rows * width);
  context.backend->Experts({.experts = &mlp,
                            .activation = activation,
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

void SharedExperts::Forward(const ForwardContext& context, const HiddenRows& h, float* out) const {
  const Arena::Scope scope(context.arena);
  float* gate = nullptr;
  if (weights_->shared_gate != nullptr && h.rows > 0) {
    gate = context.arena->Allocate<float>(h.rows);
    context.backend->Gemm({.a = FloatRows(h.f32, h.rows, weights_->shared_gate->cols()),
                           .w = weights_->shared_gate.get(),
                           .out = gate,
                           .out_stride = 1});
  }
  ForwardMlp(context, *weights_->shared, spec_->shared->mlp.activation, h, gate, out);
}

MoERunner::MoERunner(const MoeSpec* spec, const PackedMoe* weights, int64_t layer)
    : spec_(spec),
      layer_(layer),
      router_(spec, weights),
      latent_(weights),
      routed_(spec, weights),
      shared_(spec, weights) {}

Status MoERunner::Forward(const ForwardContext& context, const ExpertPlacement& placement, const HiddenRows& h,
                          int64_t hidden, float* out, const std::function<void(const Routing&)>& on_routing) const {
  const Arena::Scope scope(context.arena);
  const DType act = context.backend->act_dtype();
  const int64_t width = spec_->expert_width(hidden);
  const auto row_bytes = width * static_cast<int64_t>(DTypeSize(act));

  const Routing route = router_.Forward(context, h);
  if (on_routing) on_routing(route);
  const std::byte* x = latent_.present() ? latent_.Down(context, h) : h.act;

  MOE_ASSIGN_OR_RETURN(
      const Dispatcher::Work work,
      context.dispatcher->Dispatch(placement, x, h.rows, row_bytes,
                                   {route.ids, static_cast<size_t>(h.rows * spec_->top_k)}, spec_->top_k, layer_));
  const std::byte* results = routed_.Forward(context, work);
  MOE_ASSIGN_OR_RETURN(const auto slot_rows, context.dispatcher->Return(results));

  if (h.rows > 0) {
    CombineOp combine{.rows = h.rows,
                      .top_k = spec_->top_k,
                      .dim = width,
                      .slot_dtype = act,
                      .slot_rows = slot_rows,
                      .weights = route.weights,
                      .scale = spec_->router.scale};
    if (latent_.present()) {
      combine.out_act = context.arena->AllocateBytes(h.rows * row_bytes);
      context.backend->Combine(combine);
      latent_.Up(context, combine.out_act, h.rows, out);
    } else {
      combine.out_f32 = out;
      context.backend->Combine(combine);
    }
    if (shared_.present()) shared_.Forward(context, h, out);
  }
  return absl::OkStatus();
}

}  // namespace moe
