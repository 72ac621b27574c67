// The routers in scalar form: the definition that every backend's Route is tested against.
//
// For one row of logits z [E] (float32 throughout):
//   z' = cap(input_scale * z + logit_bias),  cap(z) = c tanh(z / c) where RouterSpec::logit_cap is set
//   p  = softmax(z') over all experts, sigmoid(z') or sqrt(softplus(z'))    RouterSpec::score
//   s  = p + select_bias, or z' + select_bias                               moves the selection only (DeepSeek-V3,
//        arXiv:2412.19437, section 2.1.2). With num_groups > 1, experts outside the top_groups best groups get s =
//        -inf; a group's score is the sum of its two largest s, or its largest    (DeepSeek-V2, arXiv:2405.04434, 2.1)
//        others_weigh_zero: chosen all the same (k is more than the groups have), they get w = 0 (DeepSeek-V2)
//   S  = the k experts with the largest s, best first; equal scores: the lowest id
//   w  = p[S];  kSum: w / max(Σw + eps, min), or w / (Σ|w|^order)^(1/order);  kSoftmaxOverChosen: softmax of z'[S];
//   then times expert_scale[S]
// kSparseMixer (arXiv:2310.00811, at inference): k rounds; in each, m = max z' of the experts left, kept are those with
// (m - z'_i) / max(|z'_i|, m) ≤ 2 jitter, and the best one's weight is its share of the softmax over the kept.
// RouterSpec::scale is applied once to the combined routed output, not here.
#ifndef MOE_ENGINE_DEVICE_REFERENCE_ROUTE_ROW_H_
#define MOE_ENGINE_DEVICE_REFERENCE_ROUTE_ROW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "loaders/model_spec.h"

namespace moe {

// Scratch of RouteRow, reused between rows.
struct RouteScratch {
  std::vector<float> probability;  // [E]
  std::vector<float> score;        // [E]
  std::vector<float> group_score;  // [groups]
  std::vector<char> taken;         // [max(E, groups)]
};

// (Σ|w|^order)^(1/order); with an infinite order the largest |w|. One definition for every path.
float WeightNorm(const float* weights, int64_t count, float order);

// logit_bias, select_bias and expert_scale: [E] or null. ids, weights: [top_k]. given: [top_k] or null, see RouteOp.
void RouteRow(const RouterSpec& spec, std::span<const float> logits, const float* logit_bias, const float* select_bias,
              const float* expert_scale, int64_t top_k, int32_t* ids, float* weights, RouteScratch& scratch,
              const int32_t* given = nullptr);

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_REFERENCE_ROUTE_ROW_H_
