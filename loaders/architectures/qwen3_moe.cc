// Qwen3-MoE and the text part of Qwen3-VL-MoE: grouped-query attention with per-head QK norm, softmax router, gated
// experts, no shared expert. With text alone the three position axes of the VL model are one.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

struct Qwen3Defaults {
  double theta = 10000.0;
  bool tied = false;
};

// All but the experts' names. Returns the number of experts.
int64_t ReadQwen3(ConfigReader* config, ModelSpec* spec, TensorRules* rules, const std::string& prefix,
                  const Qwen3Defaults& defaults) {
  ReadBasics(config, spec, defaults.tied);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope =
      ReadRope(config, {.head_dim = attn.head_dim, .theta = defaults.theta, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  AddPreNormLayers(config, spec, norm, attn, moe, ReadSparseLayers(config, num_layers));

  AddLlamaNames(rules, prefix);
  AddGatedMlpNames(rules, "layers.{l}.mlp.", prefix + "layers.{l}.mlp.");
  IgnoreCommon(rules, config, prefix, num_layers);
  return moe.num_experts;
}

}  // namespace

void ReadQwen3Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 4096;
  const int64_t num_experts = ReadQwen3(config, spec, rules, "model.", {});
  AddMoeNames(rules, "model.layers.{l}.mlp.", num_experts);
  const bool normalized = config->BoolOr("norm_topk_prob", false);
  const bool slides = config->BoolOr("use_sliding_window", false) && !config->IsNull("sliding_window");
  const int64_t window = slides ? config->IntOr("sliding_window", kDefaultWindow, 1, limits::kMaxPositions) : 0;
  for (LayerSpec& layer : spec->layers) {
    std::get<AttentionSpec>(layer.mixer).window = window;
    auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe != nullptr && !normalized) moe->router.normalize = RouterSpec::Normalize::kNone;
  }
}

void ReadQwen3VlMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const std::string prefix = "model.language_model.";
  const int64_t experts = ReadQwen3(config, spec, rules, prefix, {.theta = 500000.0});
  // The experts are stored K last by transformers 5, K first in released files.
  const std::string mlp = prefix + "layers.{l}.mlp.";
  AddMoeNames(rules, mlp, experts);
  const std::string canonical = "layers.{l}.moe.experts.{e}.";
  rules->Add(canonical + "gate", mlp + "experts.gate_up_proj", Stacked(experts).Part(0, 2).Transposed());
  rules->Add(canonical + "up", mlp + "experts.gate_up_proj", Stacked(experts).Part(1, 2).Transposed());
  rules->Add(canonical + "down", mlp + "experts.down_proj", Stacked(experts).Transposed());
  rules->Ignore("model.visual.*", "vision");
}

}  // namespace moe
