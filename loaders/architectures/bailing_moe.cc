// Ling and Ring 1 and 2 (Bailing), sarvam-30b and Param2: grouped-query attention with one fused query_key_value, a
// selection-biased sigmoid router in groups (Ling 1: softmax), dense layers first, shared experts.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

struct BailingDefaults {
  DeepseekMoeDefaults moe;
  bool select_bias = true;
  bool qk_norm = true;
  double eps = 1e-6;
  double theta = 10000.0;
  int64_t head_dim = 0;
  int64_t dense_layers = 1;
  bool output_bias = true;             // use_bias concerns the output projection of the attention, and that alone
  bool bias = false;                   // the default of use_bias
  bool normalizes_single = true;       // norm_topk_prob holds for one expert a token, too
  bool shared_width_is_total = false;  // moe_shared_expert_intermediate_size is of all shared experts together
};

void AddNames(TensorRules* rules, const AttentionSpec& attn, int64_t num_experts) {
  const std::string layer = "model.layers.{l}.";
  rules->Add("embed", "model.word_embeddings.weight");
  const int64_t q = attn.num_heads * attn.head_dim;
  const int64_t kv = attn.num_kv_heads * attn.head_dim;
  const auto add = [&](const std::string& name, int64_t begin) {
    const std::string fused = layer + "attention.query_key_value";
    rules->Add(Cat("layers.{l}.attn.", name), fused + ".weight", RowSlice(begin, q + 2 * kv));
    rules->Add(Cat("layers.{l}.attn.", name, ".bias"), fused + ".bias", RowSlice(begin, q + 2 * kv));
  };
  add("q", 0);
  add("k", q);
  add("v", q + kv);
  rules->AddLinear("layers.{l}.attn.o", layer + "attention.dense");
  rules->Add("layers.{l}.attn.q_norm", layer + "attention.query_layernorm.weight");
  rules->Add("layers.{l}.attn.k_norm", layer + "attention.key_layernorm.weight");
  rules->Add("layers.{l}.moe.router.select_bias", layer + "mlp.gate.expert_bias");
  AddLlamaNames(rules);  // as transformers holds and may save sarvam-30b
  AddDeepseekMoeNames(rules, layer + "mlp.", num_experts);
}

void ReadBailing(ConfigReader* config, ModelSpec* spec, TensorRules* rules, const BailingDefaults& defaults) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectBool("use_sliding_window", false);
  config->ExpectBool("use_rmsnorm", true);
  config->ExpectBool("norm_softmax", false);
  spec->unit_head_columns = config->BoolOr("norm_head", false);
  const NormSpec norm = ReadRmsNorm(config, defaults.eps);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, defaults.head_dim);
  attn.qkv_bias = config->BoolOr({"use_qkv_bias", "attention_bias"}, false);
  attn.output_bias = config->BoolOr("use_bias", defaults.bias) && defaults.output_bias;
  if (config->BoolOr("use_qk_norm", defaults.qk_norm)) attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  const int64_t rotary_dim = config->IntOr("rotary_dim", attn.head_dim, 2, limits::kMaxHeadDim);
  attn.rope =
      ReadRope(config, {.head_dim = attn.head_dim,
                        .theta = defaults.theta,
                        .partial_rotary_factor = static_cast<double>(rotary_dim) / static_cast<double>(attn.head_dim),
                        .max_positions = spec->max_positions});

  DeepseekMoeDefaults moe_defaults = defaults.moe;
  config->ExpectString("score_function", {"sigmoid", "softmax"});
  const bool sigmoid = moe_defaults.score == RouterSpec::Score::kSigmoid;
  moe_defaults.score = config->StringOr("score_function", sigmoid ? "sigmoid" : "softmax") == "softmax"
                           ? RouterSpec::Score::kSoftmax
                           : RouterSpec::Score::kSigmoid;
  MoeSpec moe = ReadDeepseekMoe(config, moe_defaults);
  moe.router.select_bias = config->BoolOr("moe_router_enable_expert_bias", defaults.select_bias);
  if (moe.top_k == 1 && !defaults.normalizes_single) moe.router.normalize = RouterSpec::Normalize::kNone;
  if (moe.shared) {
    const int64_t width =
        config->IntOr("moe_shared_expert_intermediate_size",
                      defaults.shared_width_is_total ? moe.shared->mlp.intermediate_size : moe.expert.intermediate_size,
                      1, limits::kMaxInner);
    moe.shared->mlp.intermediate_size = defaults.shared_width_is_total ? width : width * moe.shared->count;
  }
  AddPreNormLayers(config, spec, norm, attn, moe, ReadMlpLayerTypes(config, num_layers, defaults.dense_layers));
  AddNames(rules, attn, moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace

void ReadBailingMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBailing(config, spec, rules,
              {.moe = {.score = RouterSpec::Score::kSoftmax, .n_shared_experts = 0},
               .select_bias = false,
               .qk_norm = false,
               .eps = 1e-5,
               .dense_layers = 0,
               .bias = true,
               .normalizes_single = false});
}

void ReadBailingMoeV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBailing(config, spec, rules,
              {.moe = {.n_group = 8, .topk_group = 4}, .theta = 600000.0, .head_dim = 128, .normalizes_single = false});
}

void ReadParam2Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBailing(
      config, spec, rules,
      {.moe = {.n_group = 8, .topk_group = 4}, .theta = 600000.0, .head_dim = 128, .shared_width_is_total = true});
}

void ReadSarvamMoe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBailing(config, spec, rules,
              {.moe = {.routed_scaling_factor = 2.5},
               .theta = 8e6,
               .head_dim = 64,
               .output_bias = false,
               .shared_width_is_total = true});
}

}  // namespace moe
