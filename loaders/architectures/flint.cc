// Flint: grouped-query attention with per-head QK norm and sinks, sliding layers with RoPE and full layers without
// positions, a sigmoid router without a selection bias, and an ungated shared expert.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {

void ReadFlint(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kDefaultWindow = 513;
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, /*default_head_dim=*/128);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.sinks = true;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSigmoid;
  if (config->BoolOr("norm_topk_prob", true)) moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.intermediate_size = config->IntOr("shared_expert_intermediate_size", 1024, 1, limits::kMaxInner);

  std::vector<bool> sparse = ReadSparseLayers(config, num_layers);
  if (!config->Has("mlp_only_layers")) {
    for (size_t l = 0; l < 2 && l < sparse.size(); ++l) sparse[l] = false;
  }
  AddPreNormLayers(config, spec, norm, attn, moe, sparse);
  SetWindows(ReadWindows(config, num_layers, kDefaultWindow,
                         [&](int64_t l) {
                           return l < 2 || l % 4 == 1 || l == num_layers - 1 ? "full_attention" : "sliding_attention";
                         }),
             spec);
  for (LayerSpec& layer : spec->layers) {
    auto& of_layer = std::get<AttentionSpec>(layer.mixer);
    if (of_layer.window == 0) of_layer.rope.reset();
  }

  AddLlamaNames(rules);
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.softmax_offset");
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.sinks");
  const std::string mlp = "model.layers.{l}.mlp.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  AddMoeNames(rules, mlp, moe.num_experts);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_expert.");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
