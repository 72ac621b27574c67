#include "loaders/architectures/granite.h"

#include "loaders/architectures/common.h"

namespace moe {
namespace {

constexpr double kLarge = 1e6;

double ReadFactor(ConfigReader* config, const char* field) {
  return config->FloatOr(field, 1.0, -kLarge, kLarge);
}

}  // namespace

void ReadGraniteBasics(ConfigReader* config, ModelSpec* spec) {
  config->Assume({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11008},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"max_position_embeddings", 2048},
                  {"num_experts_per_tok", 2}});
  ReadBasics(config, spec);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  spec->embedding_scale = static_cast<float>(ReadFactor(config, "embedding_multiplier"));
  spec->logit_scale = static_cast<float>(1.0 / config->FloatOr("logits_scaling", 1.0, 1 / kLarge, kLarge));
}

AttentionSpec ReadGraniteAttention(ConfigReader* config, const ModelSpec& spec) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.scale = static_cast<float>(ReadFactor(config, "attention_multiplier"));
  return attn;
}

RopeDefaults GraniteRope(const AttentionSpec& attn, const ModelSpec& spec) {
  return {.head_dim = attn.head_dim, .max_positions = spec.max_positions, .whole_head = true};
}

FfnSpec ReadGraniteFfn(ConfigReader* config, bool has_shared, int64_t default_shared, bool may_be_dense) {
  MlpSpec shared{.activation = ReadGatedActivation(config)};
  if (has_shared) {
    shared.intermediate_size = config->IntOr("shared_intermediate_size", default_shared, 0, limits::kMaxInner);
  }
  MoeSpec moe;
  moe.num_experts = config->IntOr({"num_local_experts", "num_experts"}, 8, may_be_dense ? 0 : 1, limits::kMaxExperts);
  if (moe.num_experts == 0) return shared;
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                .activation = shared.activation};
  moe.router.normalize = RouterSpec::Normalize::kSoftmaxOverChosen;
  if (shared.intermediate_size > 0) moe.shared = SharedExpertSpec{.mlp = shared};
  return moe;
}

LayerSpec GraniteLayer(ConfigReader* config, const ModelSpec& spec, const MixerSpec& mixer, const FfnSpec& ffn) {
  LayerSpec layer;
  layer.mixer = mixer;
  layer.ffn = ffn;
  layer.mixer_norm = layer.ffn_norm = spec.final_norm;
  layer.mixer_residual.branch = layer.ffn_residual.branch =
      static_cast<float>(ReadFactor(config, "residual_multiplier"));
  return layer;
}

void AddGraniteNames(TensorRules* rules, ConfigReader* config, const FfnSpec& ffn, int64_t num_layers) {
  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  const std::string block = layer + "block_sparse_moe.";
  rules->Add("layers.{l}.moe.router", block + "router.layer.weight");
  rules->Add("layers.{l}.moe.router", block + "router.weight");
  if (const auto* moe = std::get_if<MoeSpec>(&ffn)) {
    const std::string out = "layers.{l}.moe.experts.";
    rules->AddFusedExperts(out, block + "input_linear.weight", block + "output_linear.weight", moe->num_experts);
    rules->AddFusedExperts(out, block + "experts.gate_up_proj", block + "experts.down_proj", moe->num_experts);
  }
  for (const std::string out : {"layers.{l}.moe.shared.", "layers.{l}.mlp."}) {
    rules->Add(out + "gate", layer + "shared_mlp.input_linear.weight", Plain().Part(0, 2));
    rules->Add(out + "up", layer + "shared_mlp.input_linear.weight", Plain().Part(1, 2));
    rules->Add(out + "down", layer + "shared_mlp.output_linear.weight");
  }
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
