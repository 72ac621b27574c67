// IBM's Granite MoE models: factors of embedding, attention, residual branches and logits, experts chosen by a softmax
// over the chosen logits; an ungated shared MLP in some, windows with sinks and per-layer RoPE bases in one, Mamba-2
// layers in another.
#include <algorithm>
#include <limits>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr double kLarge = 1e6;

double ReadFactor(ConfigReader* config, const char* field) {
  return config->FloatOr(field, 1.0, -kLarge, kLarge);
}

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

// The experts, and a shared MLP of shared_intermediate_size where the family has one. Without experts (`may_be_dense`)
// the shared MLP is all there is.
FfnSpec ReadGraniteFfn(ConfigReader* config, bool has_shared, int64_t default_shared, bool may_be_dense = false) {
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

void AddNames(TensorRules* rules, ConfigReader* config, const FfnSpec& ffn, int64_t num_layers) {
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
  AddNames(rules, config, ffn, num_layers);
}

Mamba2Spec ReadGraniteMamba(ConfigReader* config, const ModelSpec& spec) {
  Mamba2Spec mamba;
  mamba.num_heads = config->IntOr("mamba_n_heads", 128, 1, limits::kMaxHeads);
  const int64_t inner = config->IntOr("mamba_expand", 2, 1, 64) * spec.hidden_size;
  if (config->TypeOf("mamba_d_head") == nlohmann::json::value_t::string) {
    config->ExpectString("mamba_d_head", {"auto"});
    mamba.head_dim = inner / mamba.num_heads;
  } else {
    mamba.head_dim = config->IntOr("mamba_d_head", inner / mamba.num_heads, 1, limits::kMaxHeadDim);
  }
  if (config->ok() && mamba.inner() != inner) {
    config->Invalid("mamba_n_heads",
                    Cat("× mamba_d_head is ", mamba.inner(), ", but mamba_expand × hidden_size ", inner));
  }
  mamba.state_size = config->IntOr("mamba_d_state", 256, 1, limits::kMaxHeadDim);
  mamba.num_groups = config->IntOr("mamba_n_groups", 1, 1, limits::kMaxHeads);
  mamba.conv_kernel = config->IntOr("mamba_d_conv", 4, 1, 64);
  mamba.conv_bias = config->BoolOr("mamba_conv_bias", true);
  mamba.proj_bias = config->BoolOr("mamba_proj_bias", false);
  mamba.norm_eps = spec.final_norm.eps;
  config->ExpectString("hidden_act", {"silu"});  // of the convolution too
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> limit = config->FloatList("time_step_limit", 0, kInfinity);
  if (limit.size() == 2) {
    mamba.dt_min = static_cast<float>(limit[0]);
    mamba.dt_max = static_cast<float>(limit[1]);
  } else if (!limit.empty()) {
    config->Invalid("time_step_limit", Cat("has ", limit.size(), " numbers, expected 2"));
  }
  return mamba;
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
  AddNames(rules, config, ffn, num_layers);
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.sinks");
}

void ReadGraniteMoeHybrid(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadGraniteBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const std::vector<std::string> types = ReadLayerTypes(config, num_layers, {"linear_attention", "full_attention"},
                                                        [](int64_t) { return "linear_attention"; });
  AttentionSpec attn = ReadGraniteAttention(config, *spec);
  // Anything but "rope" means none ("nope" in released files).
  if (config->StringOr("position_embedding_type", "") == "rope") attn.rope = ReadRope(config, GraniteRope(attn, *spec));
  Mamba2Spec mamba;
  if (std::find(types.begin(), types.end(), "linear_attention") != types.end()) mamba = ReadGraniteMamba(config, *spec);
  const FfnSpec ffn = ReadGraniteFfn(config, true, 1024, /*may_be_dense=*/true);
  for (size_t l = 0; config->ok() && l < static_cast<size_t>(num_layers); ++l) {
    const MixerSpec mixer = types[l] == "linear_attention" ? MixerSpec(mamba) : MixerSpec(attn);
    spec->layers.push_back(GraniteLayer(config, *spec, mixer, ffn));
  }
  AddNames(rules, config, ffn, num_layers);
  const std::string mixer = "model.layers.{l}.mamba.";
  rules->AddLinear("layers.{l}.mamba.in_proj", mixer + "in_proj");
  rules->AddLinear("layers.{l}.mamba.out_proj", mixer + "out_proj");
  rules->AddLinear("layers.{l}.mamba.conv", mixer + "conv1d");
  rules->Add("layers.{l}.mamba.dt_bias", mixer + "dt_bias");
  rules->Add("layers.{l}.mamba.a_log", mixer + "A_log");
  rules->Add("layers.{l}.mamba.d", mixer + "D");
  rules->Add("layers.{l}.mamba.norm", mixer + "norm.weight");
}

}  // namespace moe
