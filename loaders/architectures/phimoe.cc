// Phi-3.5-MoE: layer norms with bias, biases in attention and head, sparse-mixer routing, LongRoPE with its own factors
// of cos and sin.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

RopeSpec ReadPhiRope(ConfigReader* config, int64_t head_dim, int64_t max_positions) {
  const RopeDefaults defaults{.head_dim = head_dim, .theta = 1e6, .max_positions = max_positions, .whole_head = true};
  ConfigReader settings = RopeSettings(config, defaults);
  settings.ExpectString("rope_type", {"default", "longrope"});
  settings.ExpectString("type", {"default", "longrope"});
  RopeSpec rope = ReadRope(config, defaults);
  if (rope.original_positions > 0) {
    rope.cos_sin_scale = settings.Float("short_mscale", 1e-6, 1e6);
    rope.long_cos_sin_scale = settings.Float("long_mscale", 1e-6, 1e6);
  }
  return rope;
}

}  // namespace

void ReadPhimoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 32064},
                  {"hidden_size", 4096},
                  {"intermediate_size", 6400},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"num_experts_per_tok", 2},
                  {"num_local_experts", 16}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm{
      .kind = NormKind::kLayer, .eps = static_cast<float>(config->FloatOr("rms_norm_eps", 1e-5, 0, 1)), .bias = true};
  spec->final_norm = norm;
  spec->head_bias = config->BoolOr("lm_head_bias", false);

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.window = config->IntOr("sliding_window", 0, 1, limits::kMaxPositions);
  attn.rope = ReadPhiRope(config, attn.head_dim, spec->max_positions);

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSparseMixer;
  moe.router.jitter = static_cast<float>(config->FloatOr("router_jitter_noise", 0.01, 0, 1));
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));

  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.mixer_norm.bias", layer + "input_layernorm.bias");
  rules->Add("layers.{l}.ffn_norm.bias", layer + "post_attention_layernorm.bias");
  rules->Add("final_norm.bias", "model.norm.bias");
  rules->Add("lm_head.bias", "lm_head.bias");
  rules->Add("layers.{l}.moe.router", layer + "block_sparse_moe.gate.weight");
  rules->Add("layers.{l}.moe.router", layer + "mlp.router.weight");
  rules->AddExperts("layers.{l}.moe.experts.", layer + "block_sparse_moe.experts.", "w1", "w3", "w2");
  rules->AddFusedExperts("layers.{l}.moe.experts.", layer + "mlp.experts.gate_up_proj", layer + "mlp.experts.down_proj",
                         moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
