// GLM-4.5 and the text part of GLM-4.5V: grouped-query attention that rotates half of each head, dense layers first,
// then DeepSeek-V3's router with shared experts. GLM-4.5V has no QK norm; with text alone its three position axes are
// one.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

struct GlmDefaults {
  bool attention_bias = false;
  bool qk_norm = false;
};

void ReadGlm(ConfigReader* config, ModelSpec* spec, TensorRules* rules, const std::string& prefix,
             const GlmDefaults& defaults) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  if (defaults.qk_norm) attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = config->BoolOr("attention_bias", defaults.attention_bias);
  attn.rope =
      ReadRope(config, {.head_dim = attn.head_dim, .partial_rotary_factor = 0.5, .max_positions = spec->max_positions});

  const MoeSpec moe = ReadDeepseekMoe(config, {});
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 1));

  AddLlamaNames(rules, prefix);
  AddDeepseekMoeNames(rules, prefix + "layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, prefix, num_layers, 1);
}

}  // namespace

void ReadGlm4Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  // transformers runs sarvam-30b with this class, and writes so into the checkpoints it saves.
  if (config->StringOr("model_type", "") == "sarvam_moe") return ReadSarvamMoe(config, spec, rules);
  ReadGlm(config, spec, rules, "model.", {.qk_norm = config->BoolOr("use_qk_norm", false)});
}

void ReadGlm4vMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadGlm(config, spec, rules, "model.language_model.", {.attention_bias = true});
  rules->Ignore("model.visual.*", "vision");
}

}  // namespace moe
