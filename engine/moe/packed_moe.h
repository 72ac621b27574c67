// The packed weights of one MoE block.
#ifndef MOE_ENGINE_MOE_PACKED_MOE_H_
#define MOE_ENGINE_MOE_PACKED_MOE_H_

#include <memory>
#include <vector>

#include "engine/device/ops.h"

namespace moe {

struct PackedMoe {
  std::unique_ptr<PackedMatrix> router;  // [E, H], float32
  std::vector<float> logit_bias;         // [E] or empty
  std::vector<float> select_bias;        // [E] or empty
  std::unique_ptr<PackedExperts> experts;
  std::unique_ptr<PackedExperts> shared;      // a set of one, or null
  std::unique_ptr<PackedMatrix> shared_gate;  // [1, H], float32, or null
  std::unique_ptr<PackedMatrix> latent_down;  // [latent, H] or null
  std::unique_ptr<PackedMatrix> latent_up;    // [H, latent] or null
};

}  // namespace moe

#endif  // MOE_ENGINE_MOE_PACKED_MOE_H_
