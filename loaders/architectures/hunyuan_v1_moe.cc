// Hunyuan-A13B: grouped-query attention whose QK norm comes after RoPE, softmax router whose weights always sum to one,
// and a shared MLP of the dense width. Several fields may be lists with one entry a layer.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// One value a layer; a single number holds for all. Empty when absent.
std::vector<int64_t> ReadByLayer(ConfigReader* config, const FieldNames& names, int64_t num_layers, int64_t max) {
  std::vector<int64_t> values = config->IntOrList(names, 1, max);
  const auto layers = static_cast<size_t>(num_layers);
  if (values.size() == 1) values.resize(layers, values[0]);
  if (config->ok() && !values.empty() && values.size() != layers) {
    config->Invalid(names.first(),
                    Cat("has ", values.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  return values;
}

// transformers always has the QK norm and one shared MLP, whatever use_qk_norm, use_mixed_mlp_moe and num_shared_expert
// say; the authors' code goes by the fields. The file tells which of them wrote it.
void SettleByTensors(const TensorRules::StoredShapes& stored, int64_t dense_width, ModelSpec* spec) {
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    const std::string layer = Cat("layers.", l, ".");
    auto* attn = std::get_if<AttentionSpec>(&spec->layers[l].mixer);
    if (attn != nullptr && stored(layer + "attn.q_norm") != nullptr) attn->qk_norm = QkNorm::kPerHead;
    auto* moe = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    const std::vector<int64_t>* shared = moe == nullptr ? nullptr : stored(layer + "moe.shared.gate");
    if (shared == nullptr) continue;
    const bool one = shared->size() == 2 && (*shared)[0] == dense_width;
    if (moe->shared && !one) continue;
    moe->shared = SharedExpertSpec{.mlp = moe->expert};
    moe->shared->mlp.intermediate_size = dense_width;
  }
}

}  // namespace

void ReadHunYuanV1Moe(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectBool("use_cla", false);  // K/V of one layer read by the next ones
  if (!config->BoolOr("norm_topk_prob", true)) {
    config->Unsupported("norm_topk_prob",
                        "is false: the authors' code leaves the weights as they are then, but transformers lets them "
                        "sum to one; expected true");
  }
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  if (config->BoolOr("use_qk_norm", true)) attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.qk_norm_after_rope = true;
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .max_positions = spec->max_positions});

  const int64_t dense_width = config->Int("intermediate_size", 1, limits::kMaxInner);
  const std::vector<int64_t> experts =
      ReadByLayer(config, {"num_experts", "num_local_experts"}, num_layers, limits::kMaxExperts);
  const std::vector<int64_t> top_k =
      ReadByLayer(config, {"moe_topk", "num_experts_per_tok"}, num_layers, limits::kMaxExperts);
  const std::vector<int64_t> widths = ReadByLayer(config, "moe_intermediate_size", num_layers, limits::kMaxInner);
  const std::vector<int64_t> shared = ReadByLayer(config, "num_shared_expert", num_layers, 1024);
  if (experts.empty()) config->Invalid("num_experts", "absent");
  const bool with_shared = config->BoolOr("use_mixed_mlp_moe", true);
  const int64_t dense_layers = config->IntOr("moe_layer_num_skipped", 0, 0, limits::kMaxLayers);

  MoeSpec moe;
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.normalize = RouterSpec::Normalize::kSum;
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense_layers;
  AddPreNormLayers(config, spec, norm, attn, moe, sparse);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    auto* own = std::get_if<MoeSpec>(&spec->layers[l].ffn);
    if (own == nullptr) continue;
    own->num_experts = experts[l];
    own->top_k = top_k.empty() ? 1 : top_k[l];
    own->expert.intermediate_size = widths.empty() ? dense_width : widths[l];
    if (!with_shared) continue;
    own->shared = SharedExpertSpec{.mlp = own->expert, .count = shared.empty() ? 1 : shared[l]};
    own->shared->mlp.intermediate_size = dense_width * own->shared->count;
  }

  AddLlamaNames(rules);
  const std::string layer = "model.layers.{l}.";
  const std::string mlp = layer + "mlp.";
  rules->Add("layers.{l}.attn.q_norm", layer + "self_attn.query_layernorm.weight");
  rules->Add("layers.{l}.attn.k_norm", layer + "self_attn.key_layernorm.weight");
  rules->Add("layers.{l}.moe.router", mlp + "gate.wg.weight");
  AddMoeNames(rules, mlp, experts.empty() ? 1 : experts[0]);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", mlp + "shared_mlp.");
  AddGatedMlpNames(rules, "layers.{l}.mlp.", mlp);
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->Settle([dense_width](const TensorRules::StoredShapes& stored, ModelSpec* settled) {
    SettleByTensors(stored, dense_width, settled);
  });
}

}  // namespace moe
