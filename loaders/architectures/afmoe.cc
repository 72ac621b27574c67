// AFMoE (Trinity): four norms a layer, an elementwise gate on the attention output, RoPE in the layers with a window
// only, sigmoid routing with a selection bias, shared experts.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// Fields of released files that transformers does not read, but the authors' code does: what the former computes must
// be what they say.
void CheckRouterFields(ConfigReader* config) {
  config->ExpectString("score_func", {"sigmoid"});
  if (!config->BoolOr("route_norm", true)) {
    config->Unsupported("route_norm",
                        "is false: the authors' code leaves the weights as they are then, but transformers lets them "
                        "sum to one; expected true");
  }
  for (const char* field : {"n_group", "topk_group"}) {
    const int64_t groups = config->IntOr(field, 1, 1, limits::kMaxExperts);
    if (groups != 1) config->Unsupported(field, Cat("is ", groups, "; supported for this architecture: 1"));
  }
}

}  // namespace

void ReadAfmoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  constexpr int64_t kMaxShared = 1024;
  config->Assume({{"vocab_size", 200192},
                  {"hidden_size", 2048},
                  {"intermediate_size", 6144},
                  {"moe_intermediate_size", 1408},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 16},
                  {"max_position_embeddings", 16384},
                  {"num_experts", 64},
                  {"num_experts_per_tok", 6}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;
  if (config->BoolOr("mup_enabled", false)) {
    spec->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec->hidden_size)));
  }

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 128);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.gate = AttentionGate::kElementSigmoid;
  const RopeSpec rope =
      ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions, .whole_head = true});
  const int64_t every = config->IntOr("global_attn_every_n_layers", 4, 1, limits::kMaxLayers);
  const std::vector<int64_t> windows = ReadWindows(config, num_layers, 1024, [every](int64_t l) {
    return (l + 1) % every == 0 ? "full_attention" : "sliding_attention";
  });

  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner),
                .activation = ReadGatedActivation(config)};
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.normalize_eps = 1e-20f;
  moe.router.scale = static_cast<float>(config->FloatOr("route_scale", 1.0, -1e6, 1e6));
  CheckRouterFields(config);
  if (const int64_t shared = config->IntOr("num_shared_experts", 2, 0, kMaxShared); shared > 0) {
    moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = shared};
    moe.shared->mlp.intermediate_size *= shared;
  }
  const int64_t dense = config->IntOr("num_dense_layers", 1, 0, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense;
  AddPreNormLayers(config, spec, norm, attn, moe, sparse);
  SetWindows(windows, spec);
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_post_norm = layer.ffn_post_norm = norm;
    auto& own = std::get<AttentionSpec>(layer.mixer);
    if (own.window > 0) own.rope = rope;
  }

  AddLlamaAttentionNames(rules);
  const std::string layer = "model.layers.{l}.";
  rules->Add("layers.{l}.mixer_post_norm", layer + "post_attention_layernorm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "pre_mlp_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", layer + "post_mlp_layernorm.weight");
  rules->Add("layers.{l}.attn.gate", layer + "self_attn.gate_proj.weight");
  rules->Add("layers.{l}.moe.router", layer + "mlp.router.gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", layer + "mlp.expert_bias");
  AddDeepseekMoeNames(rules, layer + "mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
