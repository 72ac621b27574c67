// Step-3.5, and the text model of Step-3.7: 1 + w norms, more heads in the layers with a window, a sigmoid gate per
// head, RoPE by kind of layer, activations clamped in some layers, sigmoid routing with a selection bias, a shared
// expert. Lists with an entry per layer may go on with the draft layers'.
#include "loaders/architectures/step3p5.h"
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"

namespace moe {
namespace {

MlpSpec Clamped(MlpSpec mlp, double limit) {
  if (limit > 0) mlp.activation = Activation::kSwigluStep;
  mlp.limit = static_cast<float>(limit);
  return mlp;
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
  // Released files may say swigluoai, and transformers computes silu whatever they say.
  config->ExpectString("hidden_act", {"silu", "swish", "swigluoai"});
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
  const StepLayerCounts counts{config->Int("num_hidden_layers", 1, limits::kMaxLayers),
                               config->IntOr({"num_nextn_predict_layers", "num_mtp_layers"}, 0, 0, kMaxDrafts)};
  const NormSpec norm{NormKind::kRmsOffset, static_cast<float>(config->FloatOr("rms_norm_eps", 1e-5, 0, 1))};
  spec->final_norm = norm;
  CheckFixedFields(config);

  std::vector<std::string> types = ReadStepKinds(config, "layer_types", counts, kStepFull, kStepSliding);
  types.resize(static_cast<size_t>(counts.layers), kStepFull);
  const std::vector<bool> sparse = ReadStepSparse(config, counts);
  const std::vector<double> expert_limits = ReadStepLimits(config, "swiglu_limits", counts);
  const std::vector<double> mlp_limits = ReadStepLimits(config, "swiglu_limits_shared", counts);
  const MlpSpec mlp{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                    .bias = config->BoolOr("mlp_bias", false)};
  const MoeSpec moe = ReadExperts(config, mlp);
  for (size_t l = 0; config->ok() && l < types.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = ReadStepAttention(config, *spec, norm, counts, types, l);
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
