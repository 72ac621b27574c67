// DBRX: one matrix for q, k and v whose outputs are clipped, layer norms without bias, experts stacked into single
// matrices. The config has names of its own.
#include <cmath>
#include <limits>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec) {
  ConfigReader own = config->Object("attn_config");
  AttentionSpec attn;
  attn.num_heads = config->IntOr({"n_heads", "num_attention_heads"}, 16, 1, limits::kMaxHeads);
  attn.num_kv_heads = own.IntOr("kv_n_heads", 1, 1, limits::kMaxHeads);
  attn.head_dim = attn.v_head_dim = spec.hidden_size / attn.num_heads;
  if (config->ok() && spec.hidden_size % attn.num_heads != 0) {
    config->Invalid("n_heads", Cat("is ", attn.num_heads, ", which does not divide d_model (", spec.hidden_size, ")"));
  }
  attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  attn.clip_qkv = static_cast<float>(own.FloatOr("clip_qkv", 0, 1e-30, 1e30));
  RopeDefaults rope{.head_dim = attn.head_dim, .max_positions = spec.max_positions, .whole_head = true};
  // The base of the released models. transformers has it too, but rotates with 10000.
  rope.fixed_theta = own.FloatOr("rope_theta", 0, 1e-3, 1e30);
  attn.rope = ReadRope(config, rope);
  return attn;
}

MoeSpec ReadExperts(ConfigReader* config) {
  ConfigReader own = config->Object("ffn_config");
  MoeSpec moe;
  moe.num_experts = own.IntOr("moe_num_experts", 4, 1, limits::kMaxExperts);
  moe.top_k = own.IntOr("moe_top_k", 1, 1, limits::kMaxExperts);
  moe.expert.intermediate_size = own.IntOr("ffn_hidden_size", 3584, 1, limits::kMaxInner);
  ConfigReader activation = own.Object("ffn_act_fn");
  activation.ExpectString("name", {"silu", "gelu", "gelu_pytorch_tanh"});
  const std::string name = activation.StringOr("name", "silu");
  if (name == "gelu") moe.expert.activation = Activation::kGeluErf;
  if (name == "gelu_pytorch_tanh") moe.expert.activation = Activation::kGeluTanh;
  // The order of the norm that the chosen weights are divided by; null: they stay as they are.
  own.Assume({{"moe_normalize_expert_weights", 1.0}});
  if (const auto order = own.OptionalFloat("moe_normalize_expert_weights", -1e6, kInfinity)) {
    moe.router.normalize = RouterSpec::Normalize::kSum;
    moe.router.normalize_order = static_cast<float>(*order);
    if (*order < 1e-3) {
      own.Unsupported("moe_normalize_expert_weights", Cat("is ", *order, "; supported: 0.001 or more, null"));
    }
  }
  return moe;
}

void AddNames(TensorRules* rules, const AttentionSpec& attn, int64_t experts) {
  const std::string layer = "transformer.blocks.{l}.";
  const std::string attention = layer + "norm_attn_norm.";
  rules->Add("embed", "transformer.wte.weight");
  rules->Add("final_norm", "transformer.norm_f.weight");
  rules->Add("lm_head", "lm_head.weight");
  rules->Add("layers.{l}.mixer_norm", attention + "norm_1.weight");
  rules->Add("layers.{l}.ffn_norm", attention + "norm_2.weight");
  const int64_t q = attn.num_heads * attn.head_dim;
  const int64_t kv = attn.num_kv_heads * attn.head_dim;
  const std::string fused = attention + "attn.Wqkv.weight";
  rules->Add("layers.{l}.attn.q", fused, RowSlice(0, q + 2 * kv));
  rules->Add("layers.{l}.attn.k", fused, RowSlice(q, q + 2 * kv));
  rules->Add("layers.{l}.attn.v", fused, RowSlice(q + kv, q + 2 * kv));
  rules->Add("layers.{l}.attn.o", attention + "attn.out_proj.weight");
  rules->Add("layers.{l}.moe.router", layer + "ffn.router.layer.weight");
  const StoredLayout flat = Stacked(experts).Flat();
  rules->Add("layers.{l}.moe.experts.{e}.gate", layer + "ffn.experts.mlp.w1", flat);
  rules->Add("layers.{l}.moe.experts.{e}.up", layer + "ffn.experts.mlp.v1", flat);
  rules->Add("layers.{l}.moe.experts.{e}.down", layer + "ffn.experts.mlp.w2", flat.Transposed());
}

}  // namespace

void ReadDbrx(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  spec->vocab_size = config->IntOr("vocab_size", 32000, 1, limits::kMaxVocab);
  spec->hidden_size = config->IntOr({"d_model", "hidden_size"}, 2048, 1, limits::kMaxWidth);
  spec->max_positions = config->IntOr({"max_seq_len", "max_position_embeddings"}, 2048, 1, limits::kMaxPositions);
  const int64_t num_layers = config->IntOr({"n_layers", "num_hidden_layers"}, 24, 1, limits::kMaxLayers);
  config->ExpectAbsent("per_layer_config");
  config->ExpectBool("tie_word_embeddings", false);
  ReadSpecialTokens(config, spec);
  const NormSpec norm{.kind = NormKind::kLayer, .eps = 1e-5f};
  spec->final_norm = norm;
  const AttentionSpec attn = ReadAttention(config, *spec);
  const MoeSpec moe = ReadExperts(config);
  AddPreNormLayers(config, spec, norm, attn, moe, std::vector<bool>(static_cast<size_t>(num_layers), true));
  AddNames(rules, attn, moe.num_experts);
  rules->Ignore("*.rotary_emb.inv_freq", "stored rotary frequencies");
}

}  // namespace moe
