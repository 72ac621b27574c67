// dots.llm1: attention with per-head QK norm, all layers full or some sliding, dense layers first, then DeepSeek-V3's
// router with shared experts.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadDots1(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 4096;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  const MoeSpec moe = ReadDeepseekMoe(config, {.norm_topk_prob = false, .n_shared_experts = 0});
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, 0));
  const int64_t full_layers = config->IntOr("max_window_layers", 62, 0, limits::kMaxLayers);
  const bool slides = !config->IsNull("sliding_window");
  SetWindows(
      ReadWindows(config, num_layers, kDefaultWindow,
                  [&](int64_t l) { return slides && l >= full_layers ? "sliding_attention" : "full_attention"; }),
      spec);

  AddLlamaNames(rules);
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
