// Operations of the MoE block: routing, grouped experts, the weighted sum.
#ifndef MOE_ENGINE_DEVICE_MOE_OPS_H_
#define MOE_ENGINE_DEVICE_MOE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/device/device_tensors.h"
#include "loaders/moe_spec.h"

namespace moe {

struct ExpertGroup {
  int32_t expert = 0;  // index in PackedExperts or of a matrix
  int32_t begin = 0;   // rows [begin, end) of the op's
  int32_t end = 0;
};

// out[i] = w[group] · rows[i]: a GEMM for each group, with rows from anywhere.
struct GroupedGemmOp {
  std::span<const std::unique_ptr<PackedMatrix>> w;  // of one shape, by ExpertGroup::expert
  std::span<const std::byte* const> rows;            // act rows, sorted by group
  std::span<const ExpertGroup> groups;
  float* out = nullptr;  // [rows, N], unless:
  // > 0: row i of group g goes to out + g * group_step + i * out_stride. Heads side by side in the rows of a step.
  int64_t group_step = 0;
  int64_t out_stride = 0;
};

// The weights of chosen experts and sinks together (RouterSpec::sinks): scale * sigmoid(z) / Σ sigmoid(z).
struct SinkWeightsOp {
  const float* logits = nullptr;       // [rows, num_experts]
  const float* sink_logits = nullptr;  // [rows, sinks]
  const int32_t* ids = nullptr;        // [rows, top_k]
  int64_t num_experts = 0;
  int64_t sinks = 0;
  int64_t top_k = 0;
  int64_t rows = 0;
  float scale = 1;
  float* weights = nullptr;       // [rows, top_k]
  float* sink_weights = nullptr;  // [sinks, rows]
};

// Top-k of one router (formulas: engine/device/reference/route_row.h). Slots are in the order of the selection score,
// best first; equal scores go to the lowest expert id.
struct RouteOp {
  const RouterSpec* spec = nullptr;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  const float* logits = nullptr;        // [rows, E]
  const float* logit_bias = nullptr;    // [E] or null
  const float* select_bias = nullptr;   // [E] or null
  const float* expert_scale = nullptr;  // [E] or null: multiplies the chosen weights
  const int32_t* given = nullptr;       // [rows, k] or null: the experts, where they are not chosen by score
  int64_t rows = 0;
  int32_t* ids = nullptr;    // [rows, k]
  float* weights = nullptr;  // [rows, k], without RouterSpec::scale
};

// out[i] = down_e(act(gate_e·x, up_e·x)) for the rows of each group. The intermediate row is rounded to act once.
// Each expert's weights are read once, however many rows chose it.
struct ExpertsOp {
  const PackedExperts* experts = nullptr;
  Activation activation = Activation::kSilu;
  float limit = 0;  // MlpSpec::limit and alpha
  float alpha = 0;
  const float* gate_bias = nullptr;        // [experts, I], or null
  const float* up_bias = nullptr;          // [experts, I], or null
  const float* down_bias = nullptr;        // [experts, width], or null
  std::span<const std::byte* const> rows;  // pointers to act rows [width], sorted by group
  std::span<const ExpertGroup> groups;     // not empty ones, ascending by begin, covering all rows
  DType out_dtype = DType::kF32;           // act or float32
  std::byte* out = nullptr;                // [rows, width]
};

// r = scale * Σ_slot weights[t, slot] * slot_rows[t, slot] (+ bias), float32, in slot order (N7); then
// out_act = round(r) if not null, else out_f32 += r.
struct CombineOp {
  int64_t rows = 0;
  int64_t top_k = 0;
  int64_t dim = 0;
  DType slot_dtype = DType::kF32;               // act
  std::span<const std::byte* const> slot_rows;  // [rows * top_k] pointers to [dim]
  const float* weights = nullptr;               // [rows, top_k]; null: all 1
  float scale = 1.0f;
  const float* bias = nullptr;   // [dim] or null
  float* out_f32 = nullptr;      // [rows, dim]
  std::byte* out_act = nullptr;  // [rows, dim]
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_MOE_OPS_H_
