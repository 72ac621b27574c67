// gpt-oss: attention sinks, a window in every other layer, biases everywhere, YaRN by default, and clamped SwiGLU
// experts whose gate and up rows alternate.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadGptOss(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 201088},
                  {"hidden_size", 2880},
                  {"intermediate_size", 2880},
                  {"num_hidden_layers", 36},
                  {"num_attention_heads", 64},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"num_experts_per_tok", 4},
                  {"num_local_experts", 128}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu", "swish"});  // that of its clamped form
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 64);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", true);
  attn.sinks = true;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim,
                                .theta = 150000,
                                .max_positions = spec->max_positions,
                                .whole_head = true,
                                .settings = {{"rope_type", "yarn"},
                                             {"factor", 32.0},
                                             {"beta_fast", 32.0},
                                             {"beta_slow", 1.0},
                                             {"truncate", false},
                                             {"original_max_position_embeddings", 4096}}});
  const std::vector<int64_t> windows = ReadWindows(
      config, num_layers, 128, [](int64_t l) { return l % 2 == 0 ? "sliding_attention" : "full_attention"; });

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = config->Int({"num_experts_per_tok", "experts_per_token"}, 1, limits::kMaxExperts);
  moe.expert = {.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                .activation = Activation::kSwigluOai,
                .bias = true,
                .limit = static_cast<float>(config->FloatOr("swiglu_limit", 7.0, 0, 1e30)),
                .alpha = static_cast<float>(config->FloatOr("swiglu_alpha", 1.702, -1e6, 1e6))};
  moe.router.normalize = RouterSpec::Normalize::kSoftmaxOverChosen;
  moe.router.logit_bias = true;
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));
  SetWindows(windows, spec);

  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.attn.sinks", layer + "self_attn.sinks");
  rules->AddLinear("layers.{l}.moe.router", layer + "mlp.router");
  const std::string experts = layer + "mlp.experts.";
  const StoredLayout gate_up = Stacked(moe.num_experts).Transposed().Interleaved();
  const StoredLayout gate_up_bias = Stacked(moe.num_experts).Interleaved();
  rules->Add("layers.{l}.moe.experts.{e}.gate", experts + "gate_up_proj", gate_up.Part(0, 2));
  rules->Add("layers.{l}.moe.experts.{e}.up", experts + "gate_up_proj", gate_up.Part(1, 2));
  rules->Add("layers.{l}.moe.experts.{e}.down", experts + "down_proj", Stacked(moe.num_experts).Transposed());
  rules->Add("layers.{l}.moe.experts.{e}.gate.bias", experts + "gate_up_proj_bias", gate_up_bias.Part(0, 2));
  rules->Add("layers.{l}.moe.experts.{e}.up.bias", experts + "gate_up_proj_bias", gate_up_bias.Part(1, 2));
  rules->Add("layers.{l}.moe.experts.{e}.down.bias", experts + "down_proj_bias", Stacked(moe.num_experts));
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
