// The packed weights of one MoE block.
#ifndef MOE_ENGINE_MOE_PACKED_MOE_H_
#define MOE_ENGINE_MOE_PACKED_MOE_H_

#include <memory>
#include <vector>

#include "engine/device/ops.h"

namespace moe {

// The MLPs of a set of experts with their biases.
struct PackedMlp {
  std::unique_ptr<PackedExperts> experts;
  std::vector<float> gate_bias;  // [experts, I] or empty
  std::vector<float> up_bias;    // [experts, I] or empty
  std::vector<float> down_bias;  // [experts, width] or empty
};

// RouterMlpSpec; all matrices float32.
struct PackedRouterMlp {
  std::unique_ptr<PackedMatrix> down, fc1, fc2;
  std::vector<float> down_bias, fc1_bias, fc2_bias;
  std::vector<float> norm;
  std::vector<float> carry;  // [width] or empty
};

struct PackedMoe {
  std::unique_ptr<PackedMatrix> router;  // [E + zero experts, H], float32
  std::vector<float> logit_bias;         // [E + zero experts] or empty
  std::vector<float> select_bias;        // [E + zero experts] or empty
  std::vector<float> router_norm;        // [H] or empty
  std::vector<float> expert_scale;       // [E + zero experts] or empty
  std::vector<int32_t> table;            // [V, top_k] or empty: the experts of each token id
  PackedMlp experts;
  PackedMlp shared;                     // a set of one, or with RouterSpec::sinks one each; or null
  std::unique_ptr<PackedMatrix> sinks;  // [sinks, H], float32, or null
  float weight_scale = 1;               // RouterSpec::weight_scale
  std::unique_ptr<PackedRouterMlp> router_mlp;
  std::vector<float> output_bias;             // [H] or empty
  std::unique_ptr<PackedMatrix> shared_gate;  // [1, H], float32, or null
  std::unique_ptr<PackedMatrix> latent_down;  // [latent, H] or null
  std::unique_ptr<PackedMatrix> latent_up;    // [H, latent] or null
  std::vector<float> latent_down_bias;        // [latent] or empty
  std::vector<float> latent_up_bias;          // [H] or empty
};

}  // namespace moe

#endif  // MOE_ENGINE_MOE_PACKED_MOE_H_
