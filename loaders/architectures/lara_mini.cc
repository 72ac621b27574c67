// Lara-Mini: gated delta net layers between layers of Qwen3's attention, which has a window and RoPE in its sliding
// layers only; experts in every layer.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/qwen_hybrid.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";
constexpr char kSliding[] = "sliding_attention";

// One in_proj: all of q, k, v, z, b and a.
void AddFusedProjection(TensorRules* rules, const std::string& linear, const GatedDeltaSpec& delta) {
  const int64_t total = delta.conv_dim() + delta.v_dim() + 2 * delta.num_v_heads;
  const std::pair<const char*, int64_t> parts[] = {{"q", delta.k_dim()},     {"k", delta.k_dim()},
                                                   {"v", delta.v_dim()},     {"z", delta.v_dim()},
                                                   {"b", delta.num_v_heads}, {"a", delta.num_v_heads}};
  int64_t begin = 0;
  for (const auto& [name, rows] : parts) {
    rules->Add(Cat("layers.{l}.delta.", name), linear + "in_proj.weight", RowSlice(begin, total));
    begin += rows;
  }
}

}  // namespace

void ReadLaraMini(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 151936},
                  {"hidden_size", 1024},
                  {"num_hidden_layers", 34},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 4},
                  {"max_position_embeddings", 131072},
                  {"moe_intermediate_size", 512},
                  {"shared_expert_intermediate_size", 512},
                  {"num_experts", 128},
                  {"num_experts_per_tok", 4}});
  ReadBasics(config, spec, /*tied_by_default=*/true);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-6);
  const GatedDeltaSpec delta = ReadGatedDelta(config, 8, 16, norm.eps);
  const MoeSpec moe = ReadQwenMoe(config, config->BoolOr("norm_topk_prob", true), /*gated_shared=*/false);
  AttentionSpec full = ReadGroupedQueryAttention(config, *spec, 128);
  full.qk_norm = QkNorm::kPerHead;
  full.qk_norm_spec = norm;
  full.qkv_bias = full.output_bias = config->BoolOr("attention_bias", false);
  AttentionSpec sliding = full;
  sliding.rope = ReadRope(config, {.head_dim = full.head_dim, .max_positions = spec->max_positions});
  sliding.window = config->IntOr("sliding_window", 512, 1, limits::kMaxPositions);

  static constexpr const char* kPattern[] = {kLinear, kSliding, kLinear, kFull, kSliding};
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {kLinear, kFull, kSliding}, [](int64_t l) { return kPattern[l % 5]; });
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    const std::string& type = types[static_cast<size_t>(l)];
    if (type == kLinear) {
      layer.mixer = delta;
    } else {
      layer.mixer = type == kSliding ? sliding : full;
    }
  }

  AddLlamaNames(rules);
  AddQwenHybridNames(rules, "model.layers.{l}.", delta, moe);
  AddFusedProjection(rules, "model.layers.{l}.linear_attn.", delta);
  rules->Add("layers.{l}.delta.norm", "model.layers.{l}.linear_attn.out_norm.weight");
  // As transformers holds it.
  AddSplitProjections(rules, "model.layers.{l}.linear_attn.", delta);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
