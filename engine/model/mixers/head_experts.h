// Mixture of attention heads: the queries and outputs of each token's own experts (HeadExpertsSpec).
#ifndef MOE_ENGINE_MODEL_MIXERS_HEAD_EXPERTS_H_
#define MOE_ENGINE_MODEL_MIXERS_HEAD_EXPERTS_H_

#include <vector>

#include "engine/model/mixers/qkv_rows.h"

namespace moe {

// Of one step of one layer; what it allocates lives until the arena's scope ends.
class HeadExperts {
 public:
  // Chooses the experts of each row.
  HeadExperts(const ForwardContext& context, const AttentionSpec& spec, const PackedAttention& weights,
              const HiddenRows& h);

  QkvRows ProjectQkv();
  // x [rows, H] += the weighted projections of `mixed`, [rows, heads * v_head_dim] in act.
  void AddOutput(const std::byte* mixed, float* x);

 private:
  const ForwardContext& context_;
  const AttentionSpec& spec_;
  const PackedAttention& weights_;
  HiddenRows h_;
  float* router_weights_ = nullptr;  // [rows, top_k]
  // Slots (row * top_k + choice) by expert, and where each expert's begin.
  std::vector<int64_t> slots_;
  std::vector<ExpertGroup> groups_;
};

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_MIXERS_HEAD_EXPERTS_H_
