// Ling and Ring with two kinds of attention: the last layer of each group is latent attention, the others are Kimi
// delta attention (Ling 3, bailing_hybrid) or lightning attention (Ring 2.5). Dense first layers, then experts behind
// DeepSeek-V3's router.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/delta_names.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/lightning.h"
#include "loaders/architectures/mla.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";

GatedDeltaSpec ReadDelta(ConfigReader* config, int64_t num_heads, const NormSpec& norm) {
  GatedDeltaSpec delta;
  // transformers writes the linear_ fields, and leaves the rope dims of the latent attention in head_dim.
  const int64_t head_dim = config->IntOr("head_dim", 128, 1, limits::kMaxHeadDim);
  const int64_t kernel = config->IntOr("short_conv_kernel_size", 4, 1, 64);
  delta.k_head_dim = delta.v_head_dim = config->IntOr("linear_head_dim", head_dim, 1, limits::kMaxHeadDim);
  delta.num_k_heads = delta.num_v_heads = config->IntOr("linear_num_heads", num_heads, 1, limits::kMaxHeads);
  delta.conv_kernel = config->IntOr("linear_conv_kernel_dim", kernel, 1, 64);
  delta.decay =
      config->BoolOr("kda_safe_gate", true) ? GatedDeltaSpec::Decay::kSafeChannel : GatedDeltaSpec::Decay::kChannel;
  delta.decay_lower_bound = static_cast<float>(config->FloatOr("kda_lower_bound", -5.0, -1e6, 0));
  delta.output_gate = GatedDeltaSpec::OutputGate::kSigmoid;
  delta.norm = norm;
  return delta;
}

LightningSpec ReadLightning(ConfigReader* config, const ModelSpec& spec, int64_t num_heads, const NormSpec& norm) {
  LightningSpec lightning;
  lightning.num_heads = num_heads;
  lightning.head_dim = config->IntOr("head_dim", 128, 1, limits::kMaxHeadDim);
  lightning.silu_qkv = config->BoolOr({"use_linear_silu", "linear_silu"}, false);
  lightning.query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(lightning.head_dim)));
  if (config->BoolOr("use_qk_norm", true)) lightning.qk_norm = QkNorm::kPerHead;
  lightning.qk_norm_spec = lightning.norm = norm;
  lightning.norm.groups = config->IntOr("group_norm_size", 4, 1, limits::kMaxHeads);
  if (config->BoolOr("linear_rope", true)) {
    lightning.rope = ReadRope(config, {.head_dim = lightning.head_dim,
                                       .theta = 600000,
                                       .partial_rotary_factor = 0.5,
                                       .max_positions = spec.max_positions});
  }
  return lightning;
}

// Ling 3.0 is trained with experts whose activation is clamped in its last layers. transformers does not read these
// fields, without which the released weights write garbage now and then; the checkpoint wins. 0: no clamp.
void ReadSwigluLimits(ConfigReader* config, ModelSpec* spec) {
  constexpr double kMost = 1e6;
  const std::vector<double> routed = config->FloatListOr("expert_swiglu_limit_list", 0, 0, kMost);
  const std::vector<double> shared = config->FloatListOr("share_expert_swiglu_limit_list", 0, 0, kMost);
  const auto check = [&](const char* field, const std::vector<double>& limits) {
    if (!config->ok() || limits.empty() || limits.size() >= spec->layers.size()) return;
    config->Invalid(field, Cat("has ", limits.size(), " entries for ", spec->layers.size(), " layers"));
  };
  check("expert_swiglu_limit_list", routed);
  check("share_expert_swiglu_limit_list", shared);
  for (size_t l = 0; config->ok() && l < spec->layers.size(); ++l) {
    auto* moe = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    if (moe == nullptr) continue;
    if (!routed.empty()) moe->expert.limit = static_cast<float>(routed[l]);
    if (!shared.empty() && moe->shared) moe->shared->mlp.limit = static_cast<float>(shared[l]);
  }
}

// What both call the same: everything but the linear attention.
void AddBailingNames(TensorRules* rules, ConfigReader* config, const MlaSpec& mla, int64_t num_experts,
                     int64_t num_layers, int64_t default_drafts) {
  AddLlamaNames(rules);
  rules->Add("embed", "model.word_embeddings.weight");
  AddMlaNames(rules, "model.layers.{l}.attention.", mla, "dense");
  rules->Add("layers.{l}.mla.gate", "model.layers.{l}.attention.g_proj.weight");
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", "model.layers.{l}.mlp.gate.expert_bias");
  rules->Ignore("model.mtp*", "multi-token prediction");
  IgnoreCommon(rules, config, "model.", num_layers, default_drafts);
}

}  // namespace

void ReadBailingHybrid(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const int64_t positions = config->IntOr("model_max_length", 262144, 1, limits::kMaxPositions);
  config->Assume({{"vocab_size", 157184},
                  {"hidden_size", 2560},
                  {"intermediate_size", 6144},
                  {"moe_intermediate_size", 768},
                  {"num_hidden_layers", 42},
                  {"num_attention_heads", 32},
                  {"num_experts", 512},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", positions}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-6);
  // transformers writes its default beside rope_parameters, which then holds.
  const double theta = config->FloatOr("rope_theta", 6e6, 1e-30, 1e30);
  MlaSpec mla = ReadMla(config, *spec, {.theta = theta, .theta_field = "", .ignore_partial = true});
  mla.gate = AttentionGate::kHeadSigmoid;
  const GatedDeltaSpec delta = ReadDelta(config, mla.num_heads, norm);
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4});
  const int64_t group = config->IntOr("layer_group_size", 6, 1, limits::kMaxLayers);
  const std::vector<std::string> types = ReadLayerTypes(
      config, num_layers, {kLinear, kFull}, [group](int64_t l) { return (l + 1) % group == 0 ? kFull : kLinear; });
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 2));
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    if (types[l] == kLinear) spec->layers[l].mixer = delta;
  }
  ReadSwigluLimits(config, spec);

  AddBailingNames(rules, config, mla, moe.num_experts, num_layers, 1);
  AddKimiDeltaNames(rules, "model.layers.{l}.attention.", delta, "dense");
  // As transformers holds them.
  AddMlaNames(rules, "model.layers.{l}.self_attn.", mla);
  rules->Add("layers.{l}.mla.gate", "model.layers.{l}.self_attn.g_proj.weight");
  AddKimiDeltaNames(rules, "model.layers.{l}.self_attn.", delta, "o_proj");
}

void ReadBailingMoeV25(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectString("score_function", {"sigmoid"});
  config->ExpectString("full_attention_type", {"mla"});
  config->ExpectBool("moe_router_enable_expert_bias", true);
  config->ExpectBool("use_bias", false);
  config->ExpectBool("use_qkv_bias", false);
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-6);
  const MlaSpec mla = ReadMla(config, *spec, {.theta = 600000, .ignore_partial = true});
  LightningSpec lightning = ReadLightning(config, *spec, mla.num_heads, norm);
  const MoeSpec moe = ReadDeepseekMoe(config, {.n_group = 8, .topk_group = 4});
  const int64_t group = config->IntOr("layer_group_size", 5, 1, limits::kMaxLayers);
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 1));
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    // Layers behind the last whole group are latent attention as well.
    if ((l + 1) % group == 0 || l >= num_layers / group * group) continue;
    lightning.slopes = AlibiSlopes(lightning.num_heads, LightningDepthFactor(l, num_layers));
    spec->layers[static_cast<size_t>(l)].mixer = lightning;
  }

  AddBailingNames(rules, config, mla, moe.num_experts, num_layers, 0);
  const std::string attention = "model.layers.{l}.attention.";
  const int64_t width = lightning.num_heads * lightning.head_dim;
  int64_t begin = 0;
  for (const char* name : {"q", "k", "v"}) {
    rules->Add(Cat("layers.{l}.lightning.", name), attention + "query_key_value.weight", RowSlice(begin, 3 * width));
    begin += width;
  }
  rules->Add("layers.{l}.lightning.q_norm", attention + "query_layernorm.weight");
  rules->Add("layers.{l}.lightning.k_norm", attention + "key_layernorm.weight");
  rules->Add("layers.{l}.lightning.norm", attention + "g_norm.weight");
  rules->Add("layers.{l}.lightning.gate", attention + "g_proj.weight");
  rules->Add("layers.{l}.lightning.o", attention + "dense.weight");
}

}  // namespace moe
