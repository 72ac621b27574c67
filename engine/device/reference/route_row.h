// The routers in scalar form: the definition that every backend's Route is tested against.
//
// For one row of logits z [E] (float32 throughout):
//   z' = z + logit_bias
//   p  = softmax(z') over all experts, or sigmoid(z')                       RouterSpec::score
//   s  = p + select_bias                      moves the selection only      (DeepSeek-V3, arXiv:2412.19437,
//   section 2.1.2) with num_groups > 1: experts outside the top_groups best groups get s = -inf; a group's score is the
//   sum of its two
//     largest s, or its largest                                             (DeepSeek-V2, arXiv:2405.04434,
//     section 2.1)
//   S  = the k experts with the largest s, best first; equal scores: the lowest id
//   w  = p[S];  kSum: w / (Σw + eps);  kSoftmaxOverChosen: softmax of z'[S]
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

// logit_bias and select_bias: [E] or null. ids, weights: [top_k].
void RouteRow(const RouterSpec& spec, std::span<const float> logits, const float* logit_bias, const float* select_bias,
              int64_t top_k, int32_t* ids, float* weights, RouteScratch& scratch);

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_REFERENCE_ROUTE_ROW_H_
