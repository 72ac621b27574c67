// Step-3.5, and the text model of Step-3.7: 1 + w norms, more heads in the layers with a window, a sigmoid gate per
// head, RoPE by kind of layer, activations clamped in some layers, sigmoid routing with a selection bias, a shared
// expert. Lists with an entry per layer may go on with the draft layers'.
#include <algorithm>
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/json_text.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

struct LayerCounts {
  int64_t layers = 0;
  int64_t drafts = 0;
};

// Cuts the draft layers' entries off.
template <typename T>
std::vector<T> Trim(ConfigReader* config, const char* field, std::vector<T> list, const LayerCounts& counts) {
  const auto size = static_cast<int64_t>(list.size());
  if (config->ok() && size != 0 && size != counts.layers && size != counts.layers + counts.drafts) {
    config->Invalid(field, Cat("has ", size, " entries for ", counts.layers, " layers"));
  }
  if (size > 0) list.resize(static_cast<size_t>(counts.layers));
  return list;
}

std::vector<std::string> ReadKinds(ConfigReader* config, const char* field, const LayerCounts& counts,
                                   const char* first, const char* second) {
  std::vector<std::string> kinds = Trim(config, field, config->StringList(field), counts);
  for (const std::string& kind : kinds) {
    if (config->ok() && kind != first && kind != second) {
      config->Unsupported(
          field, Cat("has the layer kind ", Quoted(kind), "; supported for this architecture: ", first, ", ", second));
    }
  }
  return kinds;
}

// mlp_layer_types, or the numbers of the layers with experts as a list or as "3,4,5", or all from the fourth on.
std::vector<bool> ReadSparse(ConfigReader* config, const LayerCounts& counts) {
  constexpr const char* kEnum = "moe_layers_enum";
  std::vector<bool> sparse(static_cast<size_t>(counts.layers));
  const std::vector<std::string> kinds = ReadKinds(config, "mlp_layer_types", counts, "sparse", "dense");
  if (!config->ok()) return sparse;
  const std::vector<int64_t> listed = ReadLayerNumbers(config, kEnum);
  for (size_t l = 0; l < sparse.size(); ++l) {
    if (!kinds.empty()) {
      sparse[l] = kinds[l] == "sparse";
    } else if (config->Has(kEnum)) {
      sparse[l] = std::find(listed.begin(), listed.end(), static_cast<int64_t>(l)) != listed.end();
    } else {
      sparse[l] = l >= 3;
    }
  }
  return sparse;
}

std::vector<double> ReadLimits(ConfigReader* config, const char* field, const LayerCounts& counts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> list = Trim(config, field, config->FloatListOr(field, 0, 0, kInfinity), counts);
  for (double& limit : list) {
    if (std::isinf(limit)) limit = 0;
  }
  list.resize(static_cast<size_t>(counts.layers));
  return list;
}

MlpSpec Clamped(MlpSpec mlp, double limit) {
  if (limit > 0) mlp.activation = Activation::kSwigluStep;
  mlp.limit = static_cast<float>(limit);
  return mlp;
}

// How many heads the layers with a window have where no per_layer_config says so.
int64_t ReadSlidingHeads(ConfigReader* config, int64_t heads) {
  heads = config->Object("attention_other_setting").IntOr("num_attention_heads", heads, 1, limits::kMaxHeads);
  return config->IntOr("num_sliding_attention_heads", heads, 1, limits::kMaxHeads);
}

// The entry of the first layer of a kind stands for all of them.
double EntryOf(const std::vector<double>& list, const std::vector<std::string>& types, const std::string& type,
               double otherwise) {
  const auto at = static_cast<size_t>(std::find(types.begin(), types.end(), type) - types.begin());
  return at < list.size() ? list[at] : otherwise;
}

RopeSpec ReadRopeOf(ConfigReader* config, const LayerCounts& counts, const std::vector<std::string>& types,
                    const std::string& type, int64_t head_dim, int64_t max_positions) {
  RopeDefaults rope{.head_dim = head_dim, .max_positions = max_positions, .layer_type = type};
  rope.theta_field = "";
  if (config->Object("rope_parameters").exists()) return ReadRope(config, rope);
  // Released files have lists, and a scaling for full layers only.
  std::vector<double> thetas, parts;
  if (config->TypeOf("rope_theta") == nlohmann::json::value_t::array) {
    thetas = Trim(config, "rope_theta", config->FloatList("rope_theta", 1e-3, 1e30), counts);
  } else {
    thetas = {config->FloatOr("rope_theta", 10000.0, 1e-3, 1e30)};
    thetas.resize(types.size(), thetas[0]);
  }
  parts = Trim(config, "partial_rotary_factors", config->FloatList("partial_rotary_factors", 0, 1), counts);
  rope.fixed_theta = EntryOf(thetas, types, type, 10000.0);
  rope.partial_rotary_factor = EntryOf(parts, types, type, 1.0);
  if (type == kFull) {
    rope.layer_type = "";
    return ReadRope(config, rope);
  }
  return PlainRope(rope.fixed_theta, static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor));
}

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec, const NormSpec& norm, bool sliding) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec, 128);
  attn.num_kv_heads =
      config->IntOr({"num_key_value_heads", "num_attention_groups"}, attn.num_kv_heads, 1, limits::kMaxHeads);
  attn.v_head_dim = attn.head_dim;
  attn.scale = static_cast<float>(
      1.0 / std::sqrt(config->FloatOr("query_pre_attn_scalar", static_cast<double>(attn.head_dim), 1e-6, 1e9)));
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.gate = AttentionGate::kHeadSigmoid;
  if (sliding) attn.window = config->Int("sliding_window", 1, limits::kMaxPositions);
  return attn;
}

MoeSpec ReadExperts(ConfigReader* config, const MlpSpec& shared) {
  MoeSpec moe;
  moe.num_experts = config->IntOr({"n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts"}, 288, 1,
                                  limits::kMaxExperts);
  moe.top_k = config->IntOr({"num_experts_per_tok", "moe_top_k"}, 8, 1, limits::kMaxExperts);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.scale = static_cast<float>(config->FloatOr("moe_router_scaling_factor", 1.0, -1e6, 1e6));
  moe.shared = SharedExpertSpec{.mlp = shared};
  moe.shared->mlp.intermediate_size =
      config->IntOr({"share_expert_dim", "share_expert_dims"}, 1280, 1, limits::kMaxInner);
  return moe;
}

// Fields of released files that transformers does not read: what it computes must be what they say.
void CheckFixedFields(ConfigReader* config) {
  config->ExpectString("moe_router_activation", {"sigmoid"});
  config->ExpectBool("use_moe_router_bias", true);
  config->ExpectBool("norm_expert_weight", true);
  config->ExpectBool("use_head_wise_attn_gate", true);
  config->ExpectBool("use_bidirectional_attention", false);
  if (config->TypeOf("gating") == nlohmann::json::value_t::string) {
    config->ExpectString("gating", {"per-head"});
  } else {
    config->ExpectBool("gating", true);
  }
}

// The text model as released, and as transformers 5 calls it inside the multimodal one.
void AddNames(TensorRules* rules, const std::string& prefix, int64_t experts) {
  AddLlamaNames(rules, prefix);
  const std::string layer = prefix + "layers.{l}.";
  rules->Add("layers.{l}.attn.gate", layer + "self_attn.g_proj.weight");
  rules->Add("layers.{l}.moe.router", layer + "moe.gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", layer + "moe.router_bias");
  for (const char* name : {"gate", "up", "down"}) {
    rules->Add(Cat("layers.{l}.moe.experts.{e}.", name), Cat(layer, "moe.", name, "_proj.weight"), Stacked(experts));
  }
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", layer + "share_expert.");
  AddDeepseekMoeNames(rules, layer + "mlp.", experts);
}

}  // namespace

void ReadStep3p5(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kMaxDrafts = 64;
  config->Assume({{"vocab_size", 128815},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11264},
                  {"moe_intermediate_size", 1280},
                  {"num_hidden_layers", 45},
                  {"num_attention_heads", 64},
                  {"max_position_embeddings", 128000}});
  if (!config->Has("num_attention_groups")) config->Assume({{"num_key_value_heads", 8}});
  ReadBasics(config, spec);
  const LayerCounts counts{config->Int("num_hidden_layers", 1, limits::kMaxLayers),
                           config->IntOr({"num_nextn_predict_layers", "num_mtp_layers"}, 0, 0, kMaxDrafts)};
  const NormSpec norm{NormKind::kRmsOffset, static_cast<float>(config->FloatOr("rms_norm_eps", 1e-5, 0, 1))};
  spec->final_norm = norm;
  CheckFixedFields(config);

  std::vector<std::string> types = ReadKinds(config, "layer_types", counts, kFull, kSliding);
  types.resize(static_cast<size_t>(counts.layers), kFull);
  const std::vector<bool> sparse = ReadSparse(config, counts);
  const std::vector<double> expert_limits = ReadLimits(config, "swiglu_limits", counts);
  const std::vector<double> mlp_limits = ReadLimits(config, "swiglu_limits_shared", counts);
  // Any hidden_act means silu.
  const MlpSpec mlp{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                    .bias = config->BoolOr("mlp_bias", false)};
  const MoeSpec moe = ReadExperts(config, mlp);
  for (size_t l = 0; config->ok() && l < types.size(); ++l) {
    const bool sliding = types[l] == kSliding;
    ConfigReader own = config->PerLayer(static_cast<int64_t>(l), {"num_attention_heads", "num_key_value_heads"});
    AttentionSpec attn = ReadAttention(&own, *spec, norm, sliding);
    if (sliding && !config->Has("per_layer_config")) attn.num_heads = ReadSlidingHeads(config, attn.num_heads);
    attn.rope = ReadRopeOf(config, counts, types, types[l], attn.head_dim, spec->max_positions);
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.mixer_norm = layer.ffn_norm = norm;
    if (sparse[l]) {
      MoeSpec clamped = moe;
      clamped.expert = Clamped(moe.expert, expert_limits[l]);
      clamped.shared->mlp = Clamped(moe.shared->mlp, mlp_limits[l]);
      layer.ffn = clamped;
    } else {
      layer.ffn = Clamped(mlp, mlp_limits[l]);
    }
  }

  for (const char* prefix : {"model.", "model.language_model."}) {
    AddNames(rules, prefix, moe.num_experts);
    IgnoreCommon(rules, config, prefix, counts.layers);
  }
  for (const char* tower :
       {"vision_model.*", "vit_large_projector.*", "model.vision_model.*", "model.multi_modal_projector.*"}) {
    rules->Ignore(tower, "vision");
  }
}

}  // namespace moe
