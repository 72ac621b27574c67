// MiniMax-Text-01, in transformers' form and in its own: lightning attention between layers of softmax attention,
// experts in every layer, and residuals that carry the normed input, both terms with a factor.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/lightning.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec);
  attn.window = config->OptionalInt("sliding_window", 1, limits::kMaxPositions).value_or(0);
  // transformers leaves the field alone and rotates whole heads; the released weights mean it.
  const int64_t rotary = config->IntOr("rotary_dim", attn.head_dim, 2, limits::kMaxHeadDim);
  attn.rope = ReadRope(config, {.head_dim = rotary, .theta = 1e6, .max_positions = spec.max_positions});
  return attn;
}

MoeSpec ReadMoe(ConfigReader* config) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.router.score = RouterSpec::Score::kSoftmax;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  return moe;
}

ResidualSpec ReadResidual(ConfigReader* config, const char* alpha, const char* beta, bool skip_normed) {
  return {.skip = static_cast<float>(config->FloatOr(alpha, 1, -1e6, 1e6)),
          .branch = static_cast<float>(config->FloatOr(beta, 1, -1e6, 1e6)),
          .skip_normed = skip_normed};
}

void AddNames(TensorRules* rules, const LightningSpec& lightning, int64_t num_experts) {
  AddLlamaNames(rules);
  const std::string attention = "model.layers.{l}.self_attn.";
  const int64_t dim = lightning.head_dim;
  // Head by head: q, k, v.
  rules->Add("layers.{l}.lightning.q", attention + "qkv_proj.weight", HeadSlice(0, dim, 3 * dim));
  rules->Add("layers.{l}.lightning.k", attention + "qkv_proj.weight", HeadSlice(dim, dim, 3 * dim));
  rules->Add("layers.{l}.lightning.v", attention + "qkv_proj.weight", HeadSlice(2 * dim, dim, 3 * dim));
  rules->Add("layers.{l}.lightning.norm", attention + "norm.weight");
  rules->Add("layers.{l}.lightning.gate", attention + "output_gate.weight");
  rules->Add("layers.{l}.lightning.o", attention + "out_proj.weight");
  const std::string block = "model.layers.{l}.block_sparse_moe.";
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
  // As transformers 5 holds and may save it.
  AddMoeNames(rules, "model.layers.{l}.mlp.", num_experts);
  for (const char* constant : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
    rules->Ignore(Cat("model.layers.*.self_attn.", constant), "decay constants");
  }
}

}  // namespace

void ReadMiniMax(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 14336},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-5);
  const AttentionSpec attn = ReadAttention(config, *spec);
  LightningSpec lightning;
  lightning.num_heads = attn.num_heads;
  lightning.head_dim = attn.head_dim;
  lightning.silu_qkv = true;
  lightning.norm = {NormKind::kRms, 1e-6f};  // not rms_norm_eps
  const MoeSpec moe = ReadMoe(config);
  const ResidualSpec after_full = ReadResidual(config, "full_attn_alpha_factor", "full_attn_beta_factor", true);
  const ResidualSpec after_linear = ReadResidual(config, "linear_attn_alpha_factor", "linear_attn_beta_factor", true);
  const ResidualSpec after_moe = ReadResidual(config, "mlp_alpha_factor", "mlp_beta_factor", true);
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {kLinear, kFull}, [](int64_t l) { return l % 2 == 0 ? kFull : kLinear; });
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    layer.ffn_residual = after_moe;
    if (types[static_cast<size_t>(l)] == kLinear) {
      const double depth = static_cast<double>(l) / (static_cast<double>(num_layers - 1) + 1e-5);
      lightning.slopes = GeometricSlopes(lightning.num_heads, 1 - depth + 1e-5);
      layer.mixer = lightning;
      layer.mixer_residual = after_linear;
    } else {
      layer.mixer = attn;
      layer.mixer_residual = after_full;
    }
  }
  AddNames(rules, lightning, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

void ReadMiniMaxText01(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  if (config->IntOr("shared_intermediate_size", 0, 0, limits::kMaxInner) != 0) {
    config->Unsupported("shared_intermediate_size",
                        "a shared expert is not supported for this architecture; expected 0");
  }
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-5);
  const bool post_norm = config->BoolOr("postnorm", false);
  const AttentionSpec attn = ReadAttention(config, *spec);
  LightningSpec lightning;
  lightning.num_heads = attn.num_heads;
  lightning.head_dim = attn.head_dim;
  lightning.silu_qkv = true;
  lightning.norm = {NormKind::kRms, 1e-6f};  // not rms_norm_eps
  const MoeSpec moe = ReadMoe(config);
  const ResidualSpec after_full =
      ReadResidual(config, "layernorm_full_attention_alpha", "layernorm_full_attention_beta", post_norm);
  const ResidualSpec after_linear =
      ReadResidual(config, "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", post_norm);
  const ResidualSpec after_moe = ReadResidual(config, "layernorm_mlp_alpha", "layernorm_mlp_beta", post_norm);
  // 0: lightning, 1: softmax.
  const FieldNames types_field = {"attn_type_list", "decoder_attention_types"};
  std::vector<int64_t> types = config->IntList(types_field, 0, 1);
  if (types.empty()) types.assign(static_cast<size_t>(num_layers), 1);
  if (static_cast<int64_t>(types.size()) != num_layers) {
    config->Invalid(types_field.first(),
                    Cat("has ", types.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.ffn = moe;
    layer.ffn_residual = after_moe;
    if (types[static_cast<size_t>(l)] == 0) {
      lightning.slopes = AlibiSlopes(lightning.num_heads, LightningDepthFactor(l, num_layers));
      layer.mixer = lightning;
      layer.mixer_residual = after_linear;
    } else {
      layer.mixer = attn;
      layer.mixer_residual = after_full;
    }
  }
  AddNames(rules, lightning, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
