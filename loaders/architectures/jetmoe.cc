// JetMoE: mixture of attention heads, then mixture of experts, both with a softmax over the chosen and a bias.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec, int64_t num_experts, int64_t top_k) {
  AttentionSpec attn;
  attn.num_kv_heads = config->Int("num_key_value_heads", 1, limits::kMaxHeads);
  config->OptionalInt("num_attention_heads", 1, limits::kMaxHeads);
  attn.num_heads = attn.num_kv_heads * top_k;  // whatever it says
  attn.head_dim = attn.v_head_dim = config->Int({"kv_channels", "head_dim"}, 1, limits::kMaxHeadDim);
  attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec.max_positions, .whole_head = true});
  attn.head_experts = HeadExpertsSpec{.num_experts = num_experts, .top_k = top_k};
  attn.output_bias = true;
  return attn;
}

void AddNames(TensorRules* rules, int64_t num_experts) {
  const std::string layer = "model.layers.{l}.";
  const std::string attention = layer + "self_attention.";
  AddLlamaNames(rules);
  rules->Add("layers.{l}.attn.k", attention + "kv_proj.weight", Plain().Part(0, 2));
  rules->Add("layers.{l}.attn.v", attention + "kv_proj.weight", Plain().Part(1, 2));
  rules->Add("layers.{l}.attn.router", attention + "experts.router.layer.weight");
  rules->Add("layers.{l}.attn.experts.{e}.q", attention + "experts.input_linear.weight", Stacked(num_experts));
  rules->Add("layers.{l}.attn.experts.{e}.o", attention + "experts.output_linear.weight", Stacked(num_experts));
  rules->Add("layers.{l}.attn.o.bias", attention + "experts.bias");
  rules->Add("layers.{l}.moe.router", layer + "mlp.router.layer.weight");
  rules->Add("layers.{l}.moe.output_bias", layer + "mlp.bias");
  rules->AddFusedExperts("layers.{l}.moe.experts.", layer + "mlp.input_linear.weight",
                         layer + "mlp.output_linear.weight", num_experts);
}

}  // namespace

void ReadJetMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 32000},
                  {"hidden_size", 2048},
                  {"num_hidden_layers", 12},
                  {"num_key_value_heads", 16},
                  {"kv_channels", 128},
                  {"intermediate_size", 5632},
                  {"max_position_embeddings", 4096},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2}});
  ReadBasics(config, spec, /*tied_by_default=*/true);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  const NormSpec layer_norm{.kind = NormKind::kRms, .eps = 1e-6f};  // rms_norm_eps is the final norm's alone

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                .activation = ReadGatedActivation(config, "activation_function")};
  moe.router.normalize = RouterSpec::Normalize::kSoftmaxOverChosen;
  moe.output_bias = true;
  const AttentionSpec attn = ReadAttention(config, *spec, moe.num_experts, moe.top_k);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = layer_norm;
    layer.ffn = moe;
  }
  AddNames(rules, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
