// ERNIE 4.5 and the text part of ERNIE 4.5 VL: grouped-query attention with interleaved RoPE, softmax router with a
// selection bias, shared experts. The VL model has a second router and narrower experts for vision tokens, which a text
// server never asks; with text alone its three position axes are one.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// Released VL files have lists where the text-only ones have one number: text first.
int64_t OfText(ConfigReader* config, const FieldNames& names, int64_t otherwise, int64_t min, int64_t max) {
  const std::vector<int64_t> values = config->IntOrList(names, min, max);
  return values.empty() ? otherwise : values[0];
}

std::vector<bool> SparseLayers(ConfigReader* config, int64_t num_layers) {
  if (config->Has("mlp_layer_types")) return ReadMlpLayerTypes(config, num_layers, 1);
  const int64_t first = OfText(config, "moe_layer_start_index", 1, 0, limits::kMaxLayers);
  const int64_t last = OfText(config, "moe_layer_end_index", -1, -1, limits::kMaxLayers);
  const int64_t interval = config->IntOr("moe_layer_interval", 1, 1, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) {
    sparse[static_cast<size_t>(l)] = (l + 1) % interval == 0 && l >= first && (last == -1 || l <= last);
  }
  return sparse;
}

// All but the names. Returns the number of experts.
int64_t ReadErnie(ConfigReader* config, ModelSpec* spec) {
  ReadBasics(config, spec, /*tied_by_default=*/true);
  const int64_t num_layers = ReadLayerCount(config);
  const bool bias = config->BoolOr("use_bias", false);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qkv_bias = attn.output_bias = bias;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim,
                                .theta = 500000.0,
                                .layout = RopeSpec::Layout::kInterleaved,
                                .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = OfText(config, {"moe_num_experts", "num_experts", "num_local_experts"}, 64, 1, limits::kMaxExperts);
  moe.top_k = config->IntOr({"moe_k", "num_experts_per_tok"}, 6, 1, limits::kMaxExperts);
  moe.expert.intermediate_size = OfText(config, "moe_intermediate_size", 1536, 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.select_bias = config->BoolOr("moe_use_aux_free", true);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.normalize_min = static_cast<float>(config->FloatOr("moe_norm_min", 1e-12, 0, 1));
  const int64_t shared = config->IntOr("moe_num_shared_experts", 2, 0, 1024);
  if (shared > 0) {
    moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = shared};
    moe.shared->mlp.intermediate_size *= shared;
    moe.shared->mlp.bias = bias;
  }
  AddPreNormLayers(config, spec, norm, attn, moe, SparseLayers(config, num_layers), bias);
  return moe.num_experts;
}

// transformers adds the selection bias whatever moe_use_aux_free says; the authors' code has none where it is false.
// The file tells which of them wrote it.
void SettleSelectBias(const TensorRules::StoredShapes& stored, ModelSpec* spec) {
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    auto* moe = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    if (moe != nullptr && stored(Cat("layers.", l, ".moe.router.select_bias")) != nullptr) {
      moe->router.select_bias = true;
    }
  }
}

void AddNames(TensorRules* rules, const std::string& prefix) {
  AddLlamaNames(rules, prefix);
  const std::string mlp = prefix + "layers.{l}.mlp.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_experts.");
}

}  // namespace

void ReadErnie45Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const int64_t num_experts = ReadErnie(config, spec);
  spec->head_bias = config->BoolOr("use_bias", false);
  AddNames(rules, "model.");
  rules->Add("lm_head.bias", "lm_head.bias");
  const std::string mlp = "model.layers.{l}.mlp.";
  AddMoeNames(rules, mlp, num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "moe_statics.e_score_correction_bias");
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "gate.moe_statics.e_score_correction_bias");
  IgnoreCommon(rules, config, "model.", static_cast<int64_t>(spec->layers.size()));
  rules->Ignore("*mtp*", "multi-token prediction");
  rules->Settle(SettleSelectBias);
}

void ReadErnie45VlMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const int64_t num_experts = ReadErnie(config, spec);
  AddNames(rules, "model.");
  const std::string mlp = "model.layers.{l}.mlp.";
  rules->Add("layers.{l}.moe.router", mlp + "gate.weight", Plain().Transposed());
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "moe_statics.e_score_correction_bias", Stacked(2).At(0));
  // One numbering for all experts, those for text first.
  rules->AddExperts("layers.{l}.moe.experts.", mlp + "experts.", "gate_proj", "up_proj", "down_proj");
  for (int64_t e = num_experts; e < 2 * num_experts; ++e) rules->Ignore(Cat("*.mlp.experts.", e, ".*"), "vision");
  // As transformers 5 holds and may save it.
  AddNames(rules, "model.language_model.");
  const std::string block = "model.language_model.layers.{l}.mlp.text_moe.";
  AddMoeNames(rules, block, num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.moe_statics.e_score_correction_bias");
  IgnoreCommon(rules, config, "model.", static_cast<int64_t>(spec->layers.size()));
  for (const char* pattern :
       {"*.mlp.gate.weight_1", "*.mlp.vision_moe.*", "*vision_model.*", "*vision_tower.*", "*resampler_model.*"}) {
    rules->Ignore(pattern, "vision");
  }
  rules->Ignore("*mtp*", "multi-token prediction");
  rules->Settle(SettleSelectBias);
}

}  // namespace moe
