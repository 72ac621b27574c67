// Grok-1 and Grok-2: norms before and behind attention and experts, capped attention scores, experts chosen by a
// softmax whose weights are left as they are, factors of embedding and logits. Grok-2 caps the router's and the final
// logits too, warms the scores of later queries up and has an MLP beside the experts.
#include <algorithm>
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr double kLarge = 1e6;

float ReadCap(ConfigReader* config, const char* field, double otherwise) {
  // Negative means none.
  return static_cast<float>(std::max(0.0, config->FloatOr(field, otherwise, -kLarge, kLarge)));
}

MoeSpec ReadExperts(ConfigReader* config, double router_cap) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  const int64_t dense = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.expert = {.intermediate_size = config->IntOr("moe_intermediate_size", dense, 1, limits::kMaxInner),
                .activation = Activation::kGeluErf};
  moe.router.logit_cap = ReadCap(config, "router_logit_softcapping", router_cap);
  return moe;
}

void ReadBasicsOf(ConfigReader* config, ModelSpec* spec, bool tied) {
  ReadBasics(config, spec, tied);
  spec->embedding_scale = static_cast<float>(config->Float("embedding_multiplier_scale", -kLarge, kLarge));
  spec->logit_scale = static_cast<float>(config->Float("output_multiplier_scale", -kLarge, kLarge));
  spec->final_norm = ReadRmsNorm(config, 1e-5);
}

void AddLayers(ConfigReader* config, const AttentionSpec& attn, const MoeSpec& moe, const MlpSpec* beside,
               ModelSpec* spec) {
  const int64_t num_layers = ReadLayerCount(config);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = attn;
    layer.ffn = moe;
    layer.mixer_norm = layer.mixer_post_norm = layer.ffn_norm = layer.ffn_post_norm = spec->final_norm;
    if (beside == nullptr) continue;
    layer.beside = BesideSpec{.mlp = *beside, .norm = spec->final_norm};
    // The sum is divided by √2 in front of the norm, which takes that back but for epsilon.
    layer.ffn_post_norm.eps *= 2;
  }
}

void AddNames(TensorRules* rules, const std::string& block, const std::string& gate, const std::string& up,
              const std::string& down) {
  const std::string layer = "model.layers.{l}.";
  AddLlamaNames(rules);
  rules->Add("layers.{l}.mixer_norm", layer + "pre_attn_norm.weight");
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_attn_norm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "pre_moe_norm.weight");
  rules->Add("layers.{l}.beside.norm", layer + "pre_moe_norm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_moe_norm.weight");
  AddGatedMlpNames(rules, "layers.{l}.beside.", layer + "mlp.");
  rules->Add("layers.{l}.moe.router", layer + block + ".gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", layer + block + ".experts.", gate, up, down);
  rules->Ignore("*.rotary_emb.inv_freq", "stored rotary frequencies");
}

}  // namespace

void ReadGrok1(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasicsOf(config, spec, /*tied=*/true);
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  // Named for what it is not: it multiplies the scores.
  attn.scale = static_cast<float>(config->FloatOr("attn_output_multiplier", attn.scale, -kLarge, kLarge));
  attn.logit_cap = ReadCap(config, "max_attn_value", 30);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions, .whole_head = true});
  AddLayers(config, attn, ReadExperts(config, 0), nullptr, spec);
  AddNames(rules, "moe_block", "linear", "linear_v", "linear_1");
  for (const char* name : {"q", "k", "v", "o"}) {
    rules->AddLinear(Cat("layers.{l}.attn.", name), Cat("model.layers.{l}.attn.", name, "_proj"));
  }
}

void ReadGrok2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasicsOf(config, spec, /*tied=*/false);
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 128);
  config->ExpectString("attn_logit_softcapping_method", {"tanh"});
  attn.logit_cap = ReadCap(config, "attn_logit_softcapping", 30);
  spec->logit_cap = ReadCap(config, "final_logit_softcapping", 0);
  if (config->IntOr("global_attn_every_n", 1, 1, limits::kMaxLayers) != 1) {
    config->Unsupported("global_attn_every_n", "is not 1: windows in the other layers are not supported");
  }
  if (config->IntOr("sliding_window_size", -1, -1, limits::kMaxPositions) > 0) {
    config->Unsupported("sliding_window_size", "is a window; supported: -1 or 0");
  }
  // The scores of a query at position p > attn_temperature_len count log p / log attn_temperature_len times.
  const int64_t warm_from = config->IntOr("attn_temperature_len", -1, -1, limits::kMaxPositions);
  if (warm_from == 1) config->Invalid("attn_temperature_len", "is 1, expected more");
  if (warm_from > 1) {
    const auto period = static_cast<double>(warm_from);
    attn.query_scale = {.kind = PositionScale::Kind::kLogAbove, .beta = 1 / std::log(period), .period = period};
    attn.query_scale_after_cap = attn.logit_cap > 0;
  }
  config->ExpectString("rope_type", {"original"});  // no scaling, whatever scaling_factor says
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim,
                                .partial_rotary_factor = config->BoolOr("rope_rotate_half_dims", false) ? 0.5 : 1.0,
                                .max_positions = spec->max_positions});
  const MoeSpec moe = ReadExperts(config, 30);
  const MlpSpec mlp{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                    .activation = Activation::kGeluErf};
  AddLayers(config, attn, moe, config->BoolOr("residual_moe", false) ? &mlp : nullptr, spec);
  AddNames(rules, "block_sparse_moe", "w1", "w3", "w2");
}

}  // namespace moe
