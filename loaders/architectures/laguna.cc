// Laguna: heads per layer, a softplus gate on the attention output, RoPE by kind of layer, sigmoid routing with a
// selection bias, a shared expert.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/json_text.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// true or "per-head": one value a head.
AttentionGate ReadGate(ConfigReader* config) {
  if (config->TypeOf("gating") == nlohmann::json::value_t::string) {
    config->ExpectString("gating", {"per-head", "per-element"});
    return config->String("gating") == "per-head" ? AttentionGate::kHeadSoftplus : AttentionGate::kElementSoftplus;
  }
  return config->BoolOr("gating", true) ? AttentionGate::kHeadSoftplus : AttentionGate::kElementSoftplus;
}

std::vector<int64_t> ReadHeads(ConfigReader* config, int64_t num_layers, int64_t otherwise) {
  constexpr const char* kField = "num_attention_heads_per_layer";
  if (!config->Has(kField)) return std::vector<int64_t>(static_cast<size_t>(num_layers), otherwise);
  std::vector<int64_t> heads = config->IntList(kField, 1, limits::kMaxHeads);
  if (config->ok() && static_cast<int64_t>(heads.size()) != num_layers) {
    config->Invalid(kField, Cat("has ", heads.size(), " entries for ", num_layers, " layers"));
  }
  return heads;
}

RopeSpec ReadRopeOf(ConfigReader* config, const std::string& type, const AttentionSpec& attn, const ModelSpec& spec) {
  RopeDefaults rope{.head_dim = attn.head_dim, .max_positions = spec.max_positions, .layer_type = type};
  rope.theta_field = "";
  rope.settings = {{kFull, {{"rope_theta", 500000.0}, {"partial_rotary_factor", 0.5}}},
                   {kSliding, {{"rope_theta", 10000.0}, {"partial_rotary_factor", 1.0}}}};
  return ReadRope(config, rope);
}

}  // namespace

void ReadLaguna(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 100352},
                  {"hidden_size", 2048},
                  {"intermediate_size", 8192},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 48},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"num_experts", 256},
                  {"num_experts_per_tok", 8}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 128);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.gate = ReadGate(config);
  const std::vector<int64_t> windows = ReadWindows(config, num_layers, 512, [](int64_t) { return kFull; });
  const std::vector<int64_t> heads = ReadHeads(config, num_layers, attn.num_heads);

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner),
                .activation = ReadGatedActivation(config)};
  config->ExpectBool("moe_apply_router_weight_on_input", false);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.logit_cap = static_cast<float>(config->FloatOr("moe_router_logit_softcapping", 0, 0, 1e6));
  moe.router.scale = static_cast<float>(config->FloatOr("moe_routed_scaling_factor", 1.0, -1e6, 1e6));
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.intermediate_size = config->Int("shared_expert_intermediate_size", 1, limits::kMaxInner);
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 1));
  SetWindows(windows, spec);
  for (size_t l = 0; config->ok() && l < spec->layers.size(); ++l) {
    auto& own = std::get<AttentionSpec>(spec->layers[l].mixer);
    own.num_heads = heads[l];
    own.rope = ReadRopeOf(config, own.window > 0 ? kSliding : kFull, own, *spec);
  }

  AddLlamaNames(rules);
  const std::string block = "model.layers.{l}.mlp.";
  rules->Add("layers.{l}.attn.gate", "model.layers.{l}.self_attn.g_proj.weight");
  AddDeepseekMoeNames(rules, block, moe.num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", block + "experts.e_score_correction_bias");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_expert.");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
