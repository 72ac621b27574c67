// ZAYA1: compressed convolutional attention, residuals scaled and shifted by learnt vectors, and one expert a token or
// none, chosen by a small MLP that carries its state from layer to layer.
#include <array>
#include <utility>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kFull[] = "hybrid";
constexpr char kSliding[] = "hybrid_sliding";

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec, 128);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.cca = CcaSpec{.depthwise_taps = config->IntOr("cca_time0", 2, 1, Mamba2Spec::kMaxConvKernel),
                     .grouped_taps = config->IntOr("cca_time1", 2, 1, Mamba2Spec::kMaxConvKernel)};
  return attn;
}

// rope_parameters has an object for each kind of layer, and in some files a stray rope_type beside them.
RopeSpec ReadLayerRope(ConfigReader* config, const ModelSpec& spec, int64_t head_dim, const std::string& type) {
  const nlohmann::json defaults = {
      {kFull, {{"rope_theta", 5e6}, {"partial_rotary_factor", 0.5}}},
      {kSliding, {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}},
  };
  if (config->Has("rope_parameters") && !config->Object("rope_parameters").Has(type.c_str())) {
    config->Invalid("rope_parameters", Cat("has no settings for layers of the kind ", type));
  }
  return ReadRope(
      config, {.head_dim = head_dim, .max_positions = spec.max_positions, .layer_type = type, .settings = defaults});
}

MoeSpec ReadMoe(ConfigReader* config, const NormSpec& norm) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.skip_experts = 1;
  moe.top_k = ReadTopK(config);
  if (moe.top_k != 1) {
    config->Unsupported("num_experts_per_tok", Cat("is ", moe.top_k, "; supported for this architecture: 1"));
  }
  moe.expert = {.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner),
                .activation = ReadGatedActivation(config)};
  moe.router.select_bias = true;
  moe.router.mlp = RouterMlpSpec{.width = config->IntOr("router_hidden_size", 256, 1, limits::kMaxWidth), .norm = norm};
  return moe;
}

void AddResidualNames(TensorRules* rules, const std::string& out, const std::string& in) {
  static constexpr std::array<std::pair<const char*, const char*>, 4> kNames = {{
      {"skip", "residual_scale"},
      {"skip_bias", "residual_bias"},
      {"branch", "hidden_states_scale"},
      {"branch_bias", "hidden_states_bias"},
  }};
  for (const auto& [ours, theirs] : kNames) rules->Add(out + ours, in + theirs);
}

void AddNames(TensorRules* rules, const CcaSpec& cca, int64_t num_experts) {
  const std::string layer = "model.layers.{l}.";
  const std::string qkv = layer + "self_attn.qkv_proj.";
  AddLlamaNames(rules);
  rules->Add("lm_head.bias", "lm_head.bias");
  rules->Add("embed_bias", "model.input_hidden_states_bias");
  rules->Add("embed_scale", "model.input_hidden_states_scale");
  AddResidualNames(rules, "layers.{l}.mixer_residual.", layer + "post_attention_residual_scale.");
  AddResidualNames(rules, "layers.{l}.ffn_residual.", layer + "post_mlp_residual_scale.");

  rules->AddLinear("layers.{l}.attn.q", qkv + "q_proj");
  rules->AddLinear("layers.{l}.attn.k", qkv + "k_proj");
  rules->AddLinear("layers.{l}.attn.v", qkv + "v_proj_current");
  rules->AddLinear("layers.{l}.attn.v_delayed", qkv + "v_proj_delayed");
  rules->AddLinear("layers.{l}.attn.conv_depthwise", qkv + "conv_qk_depthwise");
  rules->Add("layers.{l}.attn.conv_grouped", qkv + "conv_qk_grouped.weight", Plain().Taps(cca.grouped_taps));
  rules->Add("layers.{l}.attn.conv_grouped.bias", qkv + "conv_qk_grouped.bias");
  rules->Add("layers.{l}.attn.key_scale", layer + "self_attn.qk_norm.temp");

  const std::string gate = layer + "mlp.gate.";
  const std::string router = "layers.{l}.moe.router.";
  rules->Add("layers.{l}.moe.router", gate + "router_mlp.out_proj.weight");
  rules->AddLinear(router + "down", gate + "down_proj");
  rules->Add(router + "carry", gate + "router_states_scale");
  rules->Add(router + "mlp_norm", gate + "router_mlp.norm.weight");
  rules->AddLinear(router + "fc1", gate + "router_mlp.fc1");
  rules->AddLinear(router + "fc2", gate + "router_mlp.fc2");
  rules->Add(router + "select_bias", gate + "balancing_biases");
  rules->AddFusedExperts("layers.{l}.moe.experts.", layer + "mlp.experts.gate_up_proj", layer + "mlp.experts.down_proj",
                         num_experts);
}

}  // namespace

void ReadZaya(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 262272},
                  {"hidden_size", 2048},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 8},
                  {"num_key_value_heads", 2},
                  {"max_position_embeddings", 131072},
                  {"moe_intermediate_size", 2048},
                  {"num_experts", 16},
                  {"num_experts_per_tok", 1}});
  ReadBasics(config, spec, /*tied_by_default=*/true);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;
  spec->embedding_affine = true;
  spec->head_bias = config->BoolOr("lm_head_bias", false);
  const AttentionSpec attn = ReadAttention(config, *spec);
  const MoeSpec moe = ReadMoe(config, norm);
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {kFull, kSliding}, [](int64_t) { return kFull; });
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    const std::string& type = types[static_cast<size_t>(l)];
    LayerSpec& layer = spec->layers.emplace_back();
    auto& mixer = layer.mixer.emplace<AttentionSpec>(attn);
    mixer.rope = ReadLayerRope(config, *spec, attn.head_dim, type);
    if (type == kSliding) mixer.window = config->Int("sliding_window", 1, limits::kMaxPositions);
    layer.ffn.emplace<MoeSpec>(moe).router.mlp->carries = l > 0;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.mixer_residual.learnt = layer.ffn_residual.learnt = true;
  }
  AddNames(rules, *attn.cca, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
