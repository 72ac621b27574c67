// Qwen3-Next and Qwen3.5-MoE: gated delta net layers between layers of softmax attention that is gated inside q_proj,
// experts in (almost) every layer, norms that multiply by 1 + w.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/qwen_hybrid.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";

std::vector<std::string> ReadQwenLayerTypes(ConfigReader* config, int64_t num_layers) {
  const int64_t interval = config->IntOr("full_attention_interval", 4, 1, limits::kMaxLayers);
  return ReadLayerTypes(config, num_layers, {kLinear, kFull},
                        [interval](int64_t l) { return (l + 1) % interval == 0 ? kFull : kLinear; });
}

// Key head by key head: [q | k | v and z of its value heads], and [b | a] of them.
void AddGroupedProjections(TensorRules* rules, const std::string& linear, const GatedDeltaSpec& delta) {
  const int64_t values = delta.num_v_heads / std::max<int64_t>(1, delta.num_k_heads);
  const int64_t k = delta.k_head_dim;
  const int64_t v = values * delta.v_head_dim;
  const int64_t total = 2 * k + 2 * v;
  const std::string qkvz = linear + "in_proj_qkvz.weight";
  rules->Add("layers.{l}.delta.q", qkvz, HeadSlice(0, k, total));
  rules->Add("layers.{l}.delta.k", qkvz, HeadSlice(k, k, total));
  rules->Add("layers.{l}.delta.v", qkvz, HeadSlice(2 * k, v, total));
  rules->Add("layers.{l}.delta.z", qkvz, HeadSlice(2 * k + v, v, total));
  rules->Add("layers.{l}.delta.b", linear + "in_proj_ba.weight", HeadSlice(0, values, 2 * values));
  rules->Add("layers.{l}.delta.a", linear + "in_proj_ba.weight", HeadSlice(values, values, 2 * values));
}

// The layers of Qwen3-Next and Qwen3.5; `sparse`: which have experts.
void FillQwenLayers(ConfigReader* config, const std::vector<bool>& sparse, const GatedDeltaSpec& delta,
                    const AttentionSpec& attn, const MoeSpec& moe, const NormSpec& norm, ModelSpec* spec) {
  const auto num_layers = static_cast<int64_t>(sparse.size());
  const std::vector<std::string> types = ReadQwenLayerTypes(config, num_layers);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    if (types[static_cast<size_t>(l)] == kLinear) {
      layer.mixer = delta;
    } else {
      layer.mixer = attn;
    }
    layer.ffn = moe;
    if (!sparse[static_cast<size_t>(l)]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner)};
    }
  }
}

}  // namespace

void ReadQwen3Next(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 151936},
                  {"hidden_size", 2048},
                  {"intermediate_size", 5632},
                  {"num_hidden_layers", 48},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 2},
                  {"max_position_embeddings", 32768},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"num_experts", 512},
                  {"num_experts_per_tok", 10}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadOffsetNorm(config);
  const GatedDeltaSpec delta = ReadGatedDelta(config, 16, 32, norm.eps);
  const AttentionSpec attn = ReadGatedAttention(config, *spec, norm, /*rotated=*/0.25);
  const MoeSpec moe = ReadQwenMoe(config, config->BoolOr("norm_topk_prob", true), /*gated_shared=*/true);
  FillQwenLayers(config, ReadSparseLayers(config, num_layers), delta, attn, moe, norm, spec);

  AddGatedQueryNames(rules, "model.layers.{l}.", attn);
  AddLlamaNames(rules);
  AddQwenHybridNames(rules, "model.layers.{l}.", delta, moe);
  AddGroupedProjections(rules, "model.layers.{l}.linear_attn.", delta);
  rules->Ignore("mtp.*", "multi-token prediction");
  IgnoreCommon(rules, config, "model.", num_layers);
}

void ReadQwen35Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 248320},
                  {"hidden_size", 2048},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 2},
                  {"max_position_embeddings", 32768},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"num_experts", 256},
                  {"num_experts_per_tok", 8}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadOffsetNorm(config);
  const GatedDeltaSpec delta = ReadGatedDelta(config, 16, 32, norm.eps);
  const AttentionSpec attn = ReadGatedAttention(config, *spec, norm, /*rotated=*/0.25);
  const MoeSpec moe = ReadQwenMoe(config, /*renormalize=*/true, /*gated_shared=*/true);
  FillQwenLayers(config, std::vector<bool>(static_cast<size_t>(num_layers), true), delta, attn, moe, norm, spec);

  // The whole model's names, and those of its text part saved alone.
  for (const std::string prefix : {"model.language_model.", "model."}) {
    AddGatedQueryNames(rules, prefix + "layers.{l}.", attn);
    AddLlamaNames(rules, prefix);
    AddQwenHybridNames(rules, prefix + "layers.{l}.", delta, moe);
    AddSplitProjections(rules, prefix + "layers.{l}.linear_attn.", delta);
  }
  rules->Ignore("model.visual.*", "vision");
  rules->Ignore("mtp.*", "multi-token prediction");
  IgnoreCommon(rules, config, "model.language_model.", num_layers);
}

}  // namespace moe
