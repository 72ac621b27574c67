// Gemma-4: an MLP and, in the MoE models, experts beside it, each with its own norms, both read from the residual row;
// a router with its own norm that reads that row too; norms behind attention and ffn; in full layers larger heads,
// proportional RoPE and, as an option, keys that serve as values; a weightless norm of the values; layers that share
// earlier layers' keys and values; in the small models an input of each layer's own; soft-capped logits.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/gemma4.h"

namespace moe {
namespace {

MoeSpec ReadExperts(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm, Activation activation) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = config->Int("top_k_experts", 1, limits::kMaxExperts);
  moe.expert = {.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner),
                .activation = activation};
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.expert_scale = true;
  moe.router.reads_residual = true;
  moe.router.input_norm = norm;
  moe.router.input_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.hidden_size)));
  return moe;
}

// hidden_size_per_layer_input: 0 means none.
void ReadLayerInput(ConfigReader* config, const NormSpec& norm, Activation activation, ModelSpec* spec) {
  const int64_t dim = config->Int("hidden_size_per_layer_input", 0, limits::kMaxWidth);
  if (dim == 0) return;
  const int64_t vocab = config->IntOr("vocab_size_per_layer_input", 262144, 1, limits::kMaxVocab);
  if (config->ok() && vocab != spec->vocab_size) {
    config->Unsupported("vocab_size_per_layer_input", Cat("is ", vocab, "; supported: vocab_size (", spec->vocab_size,
                                                          "), so that every token has a row"));
  }
  LayerInputSpec input{.dim = dim, .projection_norm = norm, .norm = norm, .activation = activation};
  input.table_scale = static_cast<float>(std::sqrt(static_cast<double>(dim)));
  input.scale = static_cast<float>(std::sqrt(0.5));
  // The projection is divided by the root of hidden_size before its norm, which takes it back but for epsilon.
  input.projection_norm.eps *= static_cast<float>(spec->hidden_size);
  spec->layer_input = input;
}

void AddNames(TensorRules* rules, const std::string& prefix, const ModelSpec& spec, int64_t experts,
              const std::vector<std::string>& types, bool key_is_value) {
  AddLlamaAttentionNames(rules, prefix);
  const std::string layer = prefix + "layers.{l}.";
  rules->Add("layer_input.table", prefix + "embed_tokens_per_layer.weight");
  rules->Add("layer_input.projection", prefix + "per_layer_model_projection.weight");
  rules->Add("layer_input.norm", prefix + "per_layer_projection_norm.weight");
  rules->Add("layers.{l}.layer_input.gate", layer + "per_layer_input_gate.weight");
  rules->Add("layers.{l}.layer_input.projection", layer + "per_layer_projection.weight");
  rules->Add("layers.{l}.layer_input.norm", layer + "post_per_layer_input_norm.weight");
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_attention_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_feedforward_layernorm.weight");
  rules->Add("layers.{l}.layer_scale", layer + "layer_scalar");
  const bool sparse = experts > 0;
  AddGatedMlpNames(rules, sparse ? "layers.{l}.beside." : "layers.{l}.mlp.", layer + "mlp.");
  rules->Add(sparse ? "layers.{l}.beside.norm" : "layers.{l}.ffn_norm", layer + "pre_feedforward_layernorm.weight");
  if (sparse) {
    rules->Add("layers.{l}.beside.post_norm", layer + "post_feedforward_layernorm_1.weight");
    rules->Add("layers.{l}.ffn_norm", layer + "pre_feedforward_layernorm_2.weight");
    rules->Add("layers.{l}.ffn_own_post_norm", layer + "post_feedforward_layernorm_2.weight");
    rules->Add("layers.{l}.moe.router", layer + "router.proj.weight");
    rules->Add("layers.{l}.moe.router.norm", layer + "router.scale");
    rules->Add("layers.{l}.moe.router.expert_scale", layer + "router.per_expert_scale");
    rules->AddFusedExperts("layers.{l}.moe.experts.", layer + "experts.gate_up_proj", layer + "experts.down_proj",
                           experts);
    rules->AddExperts("layers.{l}.moe.experts.", layer + "experts.", "gate_proj", "up_proj", "down_proj");
  }
  for (size_t l = 0; l < types.size(); ++l) {
    const std::string attn = Cat(prefix, "layers.", l, ".self_attn.");
    if (key_is_value && types[l] == kGemma4Full) rules->AddLinear(Cat("layers.", l, ".attn.v"), attn + "k_proj");
    if (l < spec.layers.size() && std::get<AttentionSpec>(spec.layers[l].mixer).share_kv_with_layer >= 0) {
      for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"}) {
        rules->Ignore(Cat(attn, name, ".*"), "keys and values of layers that share earlier ones");
      }
    }
  }
}

}  // namespace

void ReadGemma4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 262144},
                  {"hidden_size", 2304},
                  {"intermediate_size", 9216},
                  {"num_hidden_layers", 30},
                  {"num_attention_heads", 8},
                  {"num_key_value_heads", 4},
                  {"max_position_embeddings", 131072},
                  {"hidden_size_per_layer_input", 256}});
  ReadBasics(config, spec, true);
  const int64_t num_layers = config->Int("num_hidden_layers", 1, limits::kMaxLayers);
  config->ExpectString("hidden_activation", {"gelu_pytorch_tanh", "gelu", "silu"});
  config->ExpectString("use_bidirectional_attention", {"vision"});
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  spec->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec->hidden_size)));
  spec->logit_cap = static_cast<float>(config->FloatOr("final_logit_softcapping", 0, 1e-30, 1e6));

  const std::string gelu = config->StringOr("hidden_activation", "gelu_pytorch_tanh");
  const Activation activation = gelu == "silu"   ? Activation::kSilu
                                : gelu == "gelu" ? Activation::kGeluErf
                                                 : Activation::kGeluTanh;
  ReadLayerInput(config, norm, activation, spec);
  const bool key_is_value = config->BoolOr("attention_k_eq_v", false);
  const bool sparse = config->BoolOr("enable_moe_block", false);
  const std::vector<std::string> types = ReadGemma4Types(config, num_layers);
  const MlpSpec mlp{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                    .activation = activation};
  const MoeSpec moe = sparse ? ReadExperts(config, *spec, norm, activation) : MoeSpec{};
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec layer;
    layer.mixer = ReadGemma4Attention(config, *spec, norm, types[static_cast<size_t>(l)], l, key_is_value);
    layer.mixer_norm = layer.mixer_post_norm = layer.ffn_norm = layer.ffn_post_norm = norm;
    layer.layer_scale = true;
    if (sparse) {
      layer.ffn = moe;
      layer.ffn_own_post_norm = norm;
      layer.beside = BesideSpec{.mlp = mlp, .norm = norm, .post_norm = norm};
    } else {
      layer.ffn = mlp;
    }
    spec->layers.push_back(std::move(layer));
  }
  ShareGemma4Keys(config, types, spec);

  // A multimodal file has everything else under other names.
  for (const char* prefix : {"model.language_model.", "model."}) {
    AddNames(rules, prefix, *spec, moe.num_experts, types, key_is_value);
    IgnoreCommon(rules, config, prefix, num_layers);
  }
  for (const char* tower : {"model.vision_tower.*", "model.embed_vision.*"}) rules->Ignore(tower, "vision");
  for (const char* tower : {"model.audio_tower.*", "model.embed_audio.*"}) rules->Ignore(tower, "audio");
}

}  // namespace moe
