// LFM2-MoE: gated short convolutions between layers of grouped-query attention with QK norm, dense first layers, then
// experts under a sigmoid router.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kConv[] = "conv";
constexpr char kFull[] = "full_attention";

MoeSpec ReadMoe(ConfigReader* config) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("moe_intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = config->BoolOr("use_expert_bias", true);
  if (config->BoolOr("norm_topk_prob", true)) {
    moe.router.normalize = RouterSpec::Normalize::kSum;
    moe.router.normalize_eps = 1e-6f;
  }
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 1.0, 0, 1e6));
  return moe;
}

void AddNames(TensorRules* rules, int64_t num_experts) {
  const std::string layer = "model.layers.{l}.";
  const std::string attention = layer + "self_attn.";
  AddLlamaNames(rules);
  rules->Add("final_norm", "model.embedding_norm.weight");  // sic: it is behind the last layer
  rules->Add("layers.{l}.mixer_norm", layer + "operator_norm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "ffn_norm.weight");
  rules->AddLinear("layers.{l}.attn.o", attention + "out_proj");
  rules->Add("layers.{l}.attn.q_norm", attention + "q_layernorm.weight");
  rules->Add("layers.{l}.attn.k_norm", attention + "k_layernorm.weight");
  for (const char* name : {"in_proj", "conv", "out_proj"}) {
    rules->AddLinear(Cat("layers.{l}.short_conv.", name), Cat(layer, "conv.", name));
  }
  const std::string block = layer + "feed_forward.";
  rules->AddMlp("layers.{l}.mlp.", block, "w1", "w3", "w2");
  AddMoeNames(rules, block, num_experts);
  rules->Add("layers.{l}.moe.router.select_bias", block + "expert_bias");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
}

}  // namespace

void ReadLfm2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 65536},
                  {"hidden_size", 2048},
                  {"intermediate_size", 7168},
                  {"moe_intermediate_size", 1792},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 128000},
                  {"num_experts", 32},
                  {"num_experts_per_tok", 4}});
  ReadBasics(config, spec, /*tied_by_default=*/true);
  spec->tied_head = config->BoolOr("tie_embedding", spec->tied_head);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm{NormKind::kRms, static_cast<float>(config->FloatOr("norm_eps", 1e-5, 0, 1))};
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .theta = 1e6, .max_positions = spec->max_positions});
  ShortConvSpec conv;
  conv.channels = spec->hidden_size;
  conv.kernel = config->IntOr("conv_L_cache", 3, 1, 64);
  conv.bias = conv.proj_bias = config->BoolOr("conv_bias", false);

  const MoeSpec moe = ReadMoe(config);
  const int64_t dense = config->IntOr("num_dense_layers", 2, 0, limits::kMaxLayers);
  if (!config->Has("layer_types")) config->Invalid("layer_types", "absent, expected one entry for each layer");
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {kConv, kFull}, [](int64_t) { return kFull; });
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    if (types[static_cast<size_t>(l)] == kConv) {
      layer.mixer = conv;
    } else {
      layer.mixer = attn;
    }
    layer.ffn = moe;
    if (l < dense) layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner)};
  }
  AddNames(rules, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
