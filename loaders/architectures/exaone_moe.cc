// K-EXAONE: attention with per-head QK norm, three sliding layers with RoPE to one full layer without positions, dense
// layers first, then DeepSeek-V3's router with shared experts.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadExaoneMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 4096;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5});
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 1));
  const bool slides = !config->IsNull("sliding_window");
  const int64_t pattern =
      config->Has("layer_types") ? 1 : config->IntOr("sliding_window_pattern", 4, 1, limits::kMaxLayers);
  SetWindows(
      ReadWindows(config, num_layers, kDefaultWindow,
                  [&](int64_t l) { return slides && (l + 1) % pattern != 0 ? "sliding_attention" : "full_attention"; }),
      spec);
  for (LayerSpec& layer : spec->layers) {
    auto& of_layer = std::get<AttentionSpec>(layer.mixer);
    if (slides && of_layer.window == 0) of_layer.rope.reset();
  }

  AddLlamaNames(rules);
  const std::string mlp = "model.layers.{l}.mlp.";
  rules->Add("layers.{l}.moe.router.select_bias", mlp + "e_score_correction_bias");
  AddDeepseekMoeNames(rules, mlp, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->Ignore("mtp.*", "multi-token prediction");
}

}  // namespace moe
