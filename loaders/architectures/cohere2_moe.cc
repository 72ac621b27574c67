// Cohere2-MoE: attention and experts both read one norm of the same row and are added together; interleaved RoPE in the
// layers with a window, none in the others.
#include <algorithm>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// RMS where the config has its epsilon, else a layer norm without bias.
NormSpec ReadNorm(ConfigReader* config) {
  if (config->Has("rms_norm_eps")) return ReadRmsNorm(config, 0);
  return {.kind = NormKind::kLayer, .eps = static_cast<float>(config->FloatOr("layer_norm_eps", 1e-5, 0, 1))};
}

MoeSpec ReadExperts(ConfigReader* config) {
  constexpr int64_t kMaxShared = 1024;
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                .activation = ReadGatedActivation(config)};
  config->ExpectString("expert_selection_fn", {"softmax", "sigmoid"});
  if (config->StringOr("expert_selection_fn", "softmax") == "sigmoid") {
    moe.router.score = RouterSpec::Score::kSigmoid;
    moe.router.select_by_logit = true;
    if (config->BoolOr("norm_topk_prob", true)) moe.router.normalize = RouterSpec::Normalize::kSum;
  } else {
    (void)config->BoolOr("norm_topk_prob", true);  // they add up to one in any case
    moe.router.normalize = RouterSpec::Normalize::kSoftmaxOverChosen;
  }
  if (const int64_t shared = config->IntOr("num_shared_experts", 0, 0, kMaxShared); shared > 0) {
    moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = shared};
    moe.shared->mlp.intermediate_size *= shared;
  }
  return moe;
}

}  // namespace

void ReadCohere2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 256000},
                  {"hidden_size", 8192},
                  {"intermediate_size", 22528},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 64},
                  {"max_position_embeddings", 8192},
                  {"num_experts_per_tok", 2},
                  {"num_experts", 8}});
  ReadBasics(config, spec, true);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadNorm(config);
  spec->final_norm = norm;
  spec->logit_scale = static_cast<float>(config->FloatOr("logit_scale", 0.0625, -1e6, 1e6));

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 128);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  const RopeSpec rope = ReadRope(config, {.head_dim = attn.head_dim,
                                          .layout = RopeSpec::Layout::kInterleaved,
                                          .max_positions = spec->max_positions,
                                          .whole_head = true});
  // The dense layers in front have a pattern of their own.
  const int64_t dense = config->IntOr("first_k_dense_replace", 0, 0, limits::kMaxLayers);
  const int64_t dense_pattern = config->IntOr("prefix_dense_sliding_window_pattern", 1, 1, limits::kMaxLayers);
  const int64_t pattern = config->IntOr("sliding_window_pattern", 4, 1, limits::kMaxLayers);
  const std::vector<int64_t> windows = ReadWindows(config, num_layers, 4096, [&](int64_t l) {
    const bool full = l < dense ? (l + 1) % dense_pattern == 0 : (l - dense + 1) % pattern == 0;
    return full ? "full_attention" : "sliding_attention";
  });
  const std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, 0);

  const MoeSpec moe = ReadExperts(config);
  config->ExpectString("shared_expert_combination_strategy", {"average", "sum"});
  const bool average = moe.shared && config->StringOr("shared_expert_combination_strategy", "average") == "average";
  MlpSpec mlp = moe.expert;
  mlp.intermediate_size = config->IntOr("prefix_dense_intermediate_size", mlp.intermediate_size, 1, limits::kMaxInner);
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    AttentionSpec own = attn;
    own.window = windows[l];
    if (own.window > 0 || (!sparse[l] && dense_pattern == 1)) own.rope = rope;
    layer.mixer = own;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.parallel = true;
    if (sparse[l]) {
      layer.ffn = moe;
      if (average) layer.ffn_residual.branch = 0.5f;
    } else {
      layer.ffn = mlp;
    }
  }

  AddLlamaAttentionNames(rules);
  rules->Add("layers.{l}.ffn_norm", "model.layers.{l}.input_layernorm.weight");
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
