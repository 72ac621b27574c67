// OLMoE and FlexOlmo: grouped-query attention with norms over the whole q and k, softmax router whose weights are used
// as they are, no shared expert. OLMoE has the usual two norms a layer and may clip q, k and v; FlexOlmo norms only
// what its blocks put out.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// All but the norms of the layers.
void ReadOlmo(ConfigReader* config, ModelSpec* spec, TensorRules* rules, const NormSpec& norm, double theta) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kFullWidth;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .theta = theta, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  if (config->BoolOr("norm_topk_prob", false)) moe.router.normalize = RouterSpec::Normalize::kSum;
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));

  AddLlamaNames(rules);
  AddMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace

void ReadOlmoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadOlmo(config, spec, rules, ReadRmsNorm(config, 1e-5), 10000.0);
  const auto clip = static_cast<float>(config->FloatOr("clip_qkv", 0, 1e-30, 1e30));
  for (LayerSpec& layer : spec->layers) {
    auto& attn = std::get<AttentionSpec>(layer.mixer);
    attn.clip_qkv = clip;
    attn.clip_after_qk_norm = true;
  }
}

void ReadFlexOlmo(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  ReadOlmo(config, spec, rules, norm, 500000.0);
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_norm = layer.ffn_norm = kNoNorm;
    layer.mixer_post_norm = layer.ffn_post_norm = norm;
  }
  rules->Add("layers.{l}.mixer_post_norm", "model.layers.{l}.post_attention_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", "model.layers.{l}.post_feedforward_layernorm.weight");
}

}  // namespace moe
