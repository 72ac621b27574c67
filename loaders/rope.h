// Rotary position embedding settings of config.json → RopeSpec with its frequencies.
#ifndef MOE_LOADERS_ROPE_H_
#define MOE_LOADERS_ROPE_H_

#include <string>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

namespace moe {

// What the family knows about its rotation; the rest is read.
struct RopeDefaults {
  int64_t head_dim = 0;  // rotated dims = head_dim × partial_rotary_factor, rounded down
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  RopeSpec::Layout layout = RopeSpec::Layout::kHalfSplit;
  int64_t max_positions = 0;  // stands in for an absent original_max_position_embeddings
  std::string layer_type;     // not empty: rope_parameters may hold one object per layer type; this one's is read
};

// Reads rope_parameters (transformers 5: all in one object, or one per layer type) and rope_theta with rope_scaling
// (hub files); where both are present they must agree. Types: default, linear, llama3, yarn, and dynamic with a fixed
// alpha; mrope is default for text. Any other is UNSUPPORTED, naming field and value. Errors go to `config`.
RopeSpec ReadRope(ConfigReader* config, const RopeDefaults& defaults);

// YaRN's m(factor, mscale): 0.1 · mscale · ln(factor) + 1, and 1 up to factor 1. Latent attention multiplies its
// softmax scale by m(factor, mscale_all_dim)².
double YarnMagnitude(double factor, double mscale);

}  // namespace moe

#endif  // MOE_LOADERS_ROPE_H_
