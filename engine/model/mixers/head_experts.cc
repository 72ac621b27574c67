#include "engine/model/mixers/head_experts.h"

#include <algorithm>
#include <cstring>

#include "engine/model/mixers/project.h"

namespace moe {

HeadExperts::HeadExperts(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
                         const HiddenRows& h)
    : context_(context), spec_(spec), weights_(weights), h_(h) {
  static constexpr RouterSpec kRouter{.normalize = RouterSpec::Normalize::kSoftmaxOverChosen};
  const PackedMatrix& router = *weights.head_experts->router;
  const int64_t experts = router.rows();
  const int64_t slots = h.rows * spec.head_experts->top_k;
  auto* logits = context.arena->Allocate<float>(h.rows * experts);
  auto* ids = context.arena->Allocate<int32_t>(slots);
  router_weights_ = context.arena->Allocate<float>(slots);
  context.backend->Gemm(
      {.a = {reinterpret_cast<const std::byte*>(h.f32), DType::kF32, h.rows, router.cols(), router.cols()},
       .w = &router,
       .out = logits,
       .out_stride = experts});
  context.backend->Route({.spec = &kRouter,
                          .num_experts = experts,
                          .top_k = spec.head_experts->top_k,
                          .logits = logits,
                          .rows = h.rows,
                          .ids = ids,
                          .weights = router_weights_});
  for (int64_t i = 0; i < slots; ++i) slots_.push_back(i);
  std::stable_sort(slots_.begin(), slots_.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  for (int64_t i = 0; i < slots; ++i) {
    const int32_t expert = ids[slots_[static_cast<size_t>(i)]];
    if (groups_.empty() || groups_.back().expert != expert) {
      groups_.push_back({expert, static_cast<int32_t>(i), static_cast<int32_t>(i)});
    }
    ++groups_.back().end;
  }
}

QkvRows HeadExperts::ProjectQkv() {
  const int64_t top_k = spec_.head_experts->top_k;
  const int64_t dim = spec_.head_dim;
  const PackedLinear& kv = weights_.qkv;
  const int64_t width = spec_.num_kv_heads * dim;  // of an expert's queries
  const int64_t q_dim = top_k * width;
  const int64_t stride = q_dim + kv.matrix->rows();
  const auto row_bytes = static_cast<int64_t>(DTypeSize(context_.backend->act_dtype())) * kv.matrix->cols();
  auto* out = context_.arena->Allocate<float>(h_.rows * stride);
  context_.backend->Gemm({.a = {h_.act, context_.backend->act_dtype(), h_.rows, kv.matrix->cols(), kv.matrix->cols()},
                          .w = kv.matrix.get(),
                          .out = out + q_dim,
                          .out_stride = stride});
  std::vector<const std::byte*> rows;
  for (const int64_t slot : slots_) rows.push_back(h_.act + slot / top_k * row_bytes);
  auto* queries = context_.arena->Allocate<float>(static_cast<int64_t>(slots_.size()) * width);
  context_.backend->GroupedGemm({.w = weights_.head_experts->q, .rows = rows, .groups = groups_, .out = queries});
  for (const int64_t slot : slots_) {
    float* row = out + slot / top_k * stride;
    for (int64_t g = 0; g < spec_.num_kv_heads; ++g, queries += dim) {
      std::copy_n(queries, dim, row + (g * top_k + slot % top_k) * dim);
    }
  }
  return {.data = out, .stride = stride};
}

void HeadExperts::AddOutput(const std::byte* mixed, float* x) {
  const int64_t top_k = spec_.head_experts->top_k;
  const auto head_bytes = static_cast<int64_t>(DTypeSize(context_.backend->act_dtype())) * spec_.v_head_dim;
  const int64_t hidden = weights_.head_experts->o[0]->rows();
  const auto count = static_cast<int64_t>(slots_.size());
  std::byte* gathered = context_.arena->AllocateBytes(static_cast<size_t>(count * spec_.num_kv_heads * head_bytes));
  auto* projected = context_.arena->Allocate<float>(count * hidden);
  std::vector<const std::byte*> rows;
  std::vector<const std::byte*> slot_rows(slots_.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = slots_[static_cast<size_t>(i)];
    const std::byte* row = mixed + slot / top_k * spec_.num_heads * head_bytes;
    rows.push_back(gathered);
    for (int64_t g = 0; g < spec_.num_kv_heads; ++g, gathered += head_bytes) {
      std::memcpy(gathered, row + (g * top_k + slot % top_k) * head_bytes, static_cast<size_t>(head_bytes));
    }
    slot_rows[static_cast<size_t>(slot)] = reinterpret_cast<const std::byte*>(projected + i * hidden);
  }
  context_.backend->GroupedGemm({.w = weights_.head_experts->o, .rows = rows, .groups = groups_, .out = projected});
  context_.backend->Combine({.rows = h_.rows,
                             .top_k = top_k,
                             .dim = hidden,
                             .slot_dtype = DType::kF32,
                             .slot_rows = slot_rows,
                             .weights = router_weights_,
                             .bias = weights_.output.bias_or_null(),
                             .out_f32 = x});
}

}  // namespace moe
