// IBM's Granite MoE models: factors of embedding, attention, residual branches and logits, experts chosen by a softmax
// over the chosen logits; an ungated shared MLP in some, windows with sinks and per-layer RoPE bases in one
// (granite_hybrid.cc: Mamba-2 layers in another).
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/granite.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// All layers with rotated attention.
void ReadPlainGranite(ConfigReader* config, ModelSpec* spec, TensorRules* rules, bool has_shared) {
  ReadGraniteBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  AttentionSpec attn = ReadGraniteAttention(config, *spec);
  attn.rope = ReadRope(config, GraniteRope(attn, *spec));
  const FfnSpec ffn = ReadGraniteFfn(config, has_shared, 0);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    spec->layers.push_back(GraniteLayer(config, *spec, attn, ffn));
  }
  AddGraniteNames(rules, config, ffn, num_layers);
}

}  // namespace

void ReadGraniteMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadPlainGranite(config, spec, rules, false);
}

void ReadGraniteMoeShared(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadPlainGranite(config, spec, rules, true);
}

void ReadGraniteMoeSwa(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadGraniteBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  AttentionSpec attn = ReadGraniteAttention(config, *spec);
  attn.sinks = true;
  const std::vector<int64_t> windows = ReadWindows(
      config, num_layers, 128, [](int64_t l) { return l % 4 == 0 ? "full_attention" : "sliding_attention"; });
  // The RoPE base of each layer; 0: it does not rotate.
  const std::vector<double> thetas = config->FloatList("layer_rope_theta", 0, 1e30);
  if (config->ok() && config->Has("layer_rope_theta") && static_cast<int64_t>(thetas.size()) < num_layers) {
    config->Invalid("layer_rope_theta", Cat("has ", thetas.size(), " entries for ", num_layers, " layers"));
  }
  const FfnSpec ffn = ReadGraniteFfn(config, true, 0);
  for (size_t l = 0; config->ok() && l < static_cast<size_t>(num_layers); ++l) {
    RopeDefaults rope = GraniteRope(attn, *spec);
    if (!thetas.empty()) rope.fixed_theta = thetas[l];
    attn.rope.reset();
    if (thetas.empty() || thetas[l] > 0) attn.rope = ReadRope(config, rope);
    attn.window = windows[l];
    spec->layers.push_back(GraniteLayer(config, *spec, attn, ffn));
  }
  AddGraniteNames(rules, config, ffn, num_layers);
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.sinks");
}

}  // namespace moe
