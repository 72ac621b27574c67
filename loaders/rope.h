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
  int64_t max_positions = 0;    // stands in for an absent original_max_position_embeddings
  std::string layer_type = "";  // not empty: rope_parameters may hold one object per layer type; this one's is read
  // The family always rotates the whole head: a partial_rotary_factor other than 1 is UNSUPPORTED.
  bool whole_head = false;
  // partial_rotary_factor is another rotation's: `partial_rotary_factor` above holds, whatever the config says.
  bool ignore_partial = false;
  // The field beside rope_parameters and rope_scaling that has the base; empty: none has.
  std::string theta_field = "rope_theta";
  double fixed_theta = 0;  // > 0: the base, whatever the config's is
  // An object that stands in for rope_parameters where there is neither that nor rope_scaling.
  nlohmann::json settings = nullptr;
};

// Reads rope_parameters (transformers 5: all in one object, or one per layer type) and rope_theta with rope_scaling
// (hub files); where both are present they must agree. Types: default, linear, llama3, yarn, longrope, proportional and
// dynamic; mrope is default for text. Any other is UNSUPPORTED, naming field and value. Errors go to `config`.
// LongRoPE has two sets of frequencies, for sequences up to original_max_position_embeddings and for longer ones. Which
// one a sequence has is decided once, before its first token, by the longest it may become (prompt and max_new_tokens):
// keys of both kinds in one cache would not fit each other. transformers looks at the longest position so far instead,
// and so changes over in the middle of a sequence that grows past the border; before and behind it the two agree.
RopeSpec ReadRope(ConfigReader* config, const RopeDefaults& defaults);

// The object ReadRope takes the settings from; it need not exist.
ConfigReader RopeSettings(ConfigReader* config, const RopeDefaults& defaults);

// Where nothing is rotated: rope_parameters and rope_scaling, if the file has them, must not ask for more than the
// default rotation, whose settings many files carry along; any other kind is UNSUPPORTED.
void ExpectUnscaledRope(ConfigReader* config);

// Unscaled frequencies: theta^(-2i/rotated) for the first `rotated` dims of a head.
RopeSpec PlainRope(double theta, int64_t rotated, RopeSpec::Layout layout = RopeSpec::Layout::kHalfSplit);

// YaRN's m(factor, mscale): 0.1 · mscale · ln(factor) + 1, and 1 up to factor 1. Latent attention multiplies its
// softmax scale by m(factor, mscale_all_dim)².
double YarnMagnitude(double factor, double mscale);

}  // namespace moe

#endif  // MOE_LOADERS_ROPE_H_
