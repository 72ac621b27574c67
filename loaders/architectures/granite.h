// What IBM's Granite MoE models share.
#ifndef MOE_LOADERS_ARCHITECTURES_GRANITE_H_
#define MOE_LOADERS_ARCHITECTURES_GRANITE_H_

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/rope.h"
#include "loaders/tensor_rules.h"

namespace moe {

// vocab_size and the like, the final norm, and the factors of embedding and logits.
void ReadGraniteBasics(ConfigReader* config, ModelSpec* spec);

// Without rotation.
AttentionSpec ReadGraniteAttention(ConfigReader* config, const ModelSpec& spec);
RopeDefaults GraniteRope(const AttentionSpec& attn, const ModelSpec& spec);

// The experts, and a shared MLP of shared_intermediate_size where the family has one. Without experts (`may_be_dense`)
// the shared MLP is all there is.
FfnSpec ReadGraniteFfn(ConfigReader* config, bool has_shared, int64_t default_shared, bool may_be_dense = false);

// A layer of them, with the factor of its branches.
LayerSpec GraniteLayer(ConfigReader* config, const ModelSpec& spec, const MixerSpec& mixer, const FfnSpec& ffn);

// All names but those of Mamba layers and of sinks.
void AddGraniteNames(TensorRules* rules, ConfigReader* config, const FfnSpec& ffn, int64_t num_layers);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_GRANITE_H_
