// MiniMax-M3, the text model of its multimodal checkpoint: 1 + w norms, grouped-query attention with a norm over each
// head of q and k, block-sparse in most layers; sigmoid routing with a selection bias, a shared expert, clamped swiglu.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kFull[] = "full_attention";
constexpr char kSparse[] = "minimax_m3_sparse";

// A list of 0 and 1 for the layers; empty when absent.
std::vector<int64_t> ReadSwitches(ConfigReader* config, const char* field, int64_t num_layers) {
  std::vector<int64_t> switches = config->IntList(field, 0, limits::kMaxLayers);
  if (config->ok() && !switches.empty() && static_cast<int64_t>(switches.size()) != num_layers) {
    config->Invalid(field,
                    Cat("has ", switches.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  return switches;
}

std::vector<std::string> ReadAttentionKinds(ConfigReader* config, ConfigReader* old_style, int64_t num_layers) {
  std::vector<int64_t> switches;
  if (old_style->exists()) switches = ReadSwitches(old_style, "sparse_attention_freq", num_layers);
  return ReadLayerTypes(config, num_layers, {kFull, kSparse}, [&switches](int64_t l) {
    return !switches.empty() && switches[static_cast<size_t>(l)] != 0 ? kSparse : kFull;
  });
}

std::vector<bool> ReadSparseMlps(ConfigReader* config, int64_t num_layers) {
  std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, /*dense_by_default=*/0);
  const std::vector<int64_t> switches = ReadSwitches(config, "moe_layer_freq", num_layers);
  if (!config->ok() || config->Has("mlp_layer_types") || switches.empty()) return sparse;
  for (size_t l = 0; l < sparse.size(); ++l) sparse[l] = switches[l] != 0;
  return sparse;
}

BlockIndexerSpec ReadBlockIndexer(ConfigReader* config, ConfigReader* old_style, const NormSpec& norm) {
  // The original names, in an object of their own, come first.
  const auto read = [&](const char* name, const char* old_name, int64_t otherwise, int64_t min, int64_t max) {
    const int64_t value = config->IntOr(name, otherwise, min, max);
    return old_style->exists() ? old_style->IntOr(old_name, value, min, max) : value;
  };
  BlockIndexerSpec indexer;
  indexer.pooling = BlockIndexerSpec::Pooling::kMaxScore;
  indexer.num_heads = read("index_n_heads", "sparse_num_index_heads", 4, 1, limits::kMaxHeads);
  indexer.head_dim = read("index_head_dim", "sparse_index_dim", 128, 1, limits::kMaxHeadDim);
  indexer.block_size = read("index_block_size", "sparse_block_size", 128, 1, limits::kMaxPositions);
  indexer.top_blocks = read("index_topk_blocks", "sparse_topk_blocks", 16, 1, limits::kMaxPositions);
  indexer.local_blocks = read("index_local_blocks", "sparse_local_block", 1, 0, limits::kMaxPositions);
  indexer.norm = norm;
  return indexer;
}

MoeSpec ReadMoe(ConfigReader* config) {
  config->ExpectString("scoring_func", {"sigmoid"});
  // transformers has the bias whatever the field says; a file of other code that goes by it lacks the tensors.
  config->ExpectUnusedField("use_routing_bias", true);
  // The activation is the same whatever hidden_act says.
  config->ExpectString("hidden_act", {"silu", "swigluoai"});
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                .activation = Activation::kSwigluOai,
                .limit = static_cast<float>(config->FloatOr("swiglu_limit", 7, 0, 1e6)),
                .alpha = static_cast<float>(config->FloatOr("swiglu_alpha", 1.702, -1e6, 1e6))};
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  moe.router.normalize = RouterSpec::Normalize::kSum;
  moe.router.scale = static_cast<float>(config->FloatOr("routed_scaling_factor", 2, 0, 1e6));
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  moe.shared->mlp.intermediate_size = config->Int("shared_intermediate_size", 1, limits::kMaxInner);
  return moe;
}

// An MLP whose gate and up are in one matrix, as transformers holds it, or apart.
void AddMlpNames(TensorRules* rules, const std::string& out, const std::string& in) {
  AddGatedMlpNames(rules, out, in);
  rules->Add(out + "gate", in + "gate_up_proj.weight", Plain().Part(0, 2));
  rules->Add(out + "up", in + "gate_up_proj.weight", Plain().Part(1, 2));
}

// `prefix` is that of the text model.
void AddNames(TensorRules* rules, const std::string& prefix, int64_t num_experts) {
  AddLlamaNames(rules, prefix);
  const std::string layer = prefix + "layers.{l}.";
  const std::string indexer = "layers.{l}.attn.block_indexer.";
  for (const char* in : {"self_attn.index_", "self_attn.indexer."}) {
    for (const char* name : {"q", "k"}) {
      rules->Add(indexer + name, Cat(layer, in, name, "_proj.weight"));
      rules->Add(Cat(indexer, name, "_norm"), Cat(layer, in, name, "_norm.weight"));
    }
  }
  AddMlpNames(rules, "layers.{l}.mlp.", layer + "mlp.");
  const std::string stored = layer + "block_sparse_moe.";
  rules->AddExperts("layers.{l}.moe.experts.", stored + "experts.", "w1", "w3", "w2");
  rules->Add("layers.{l}.moe.router.select_bias", stored + "e_score_correction_bias");
  // … or as transformers holds them.
  for (const std::string& block : {stored, layer + "mlp."}) {
    AddMoeNames(rules, block, num_experts);
    rules->Add("layers.{l}.moe.router.select_bias", block + "gate.e_score_correction_bias");
    AddMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_experts.");
  }
}

}  // namespace

void ReadMiniMaxM3(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 200064},
                  {"hidden_size", 6144},
                  {"intermediate_size", 3072},
                  {"dense_intermediate_size", 12288},
                  {"shared_intermediate_size", 3072},
                  {"num_hidden_layers", 60},
                  {"num_attention_heads", 64},
                  {"num_key_value_heads", 4},
                  {"head_dim", 128},
                  {"max_position_embeddings", 524288},
                  {"num_local_experts", 128},
                  {"num_experts_per_tok", 4},
                  {"bos_token_id", 200034},
                  {"eos_token_id", 200020}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  NormSpec norm = ReadRmsNorm(config, 1e-6);
  norm.kind = NormKind::kRmsOffset;
  spec->final_norm = norm;
  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.rope = ReadRope(config, {.head_dim = attn.head_dim, .theta = 5e6, .max_positions = spec->max_positions});
  const MoeSpec moe = ReadMoe(config);
  MlpSpec dense = moe.expert;
  dense.intermediate_size = config->Int("dense_intermediate_size", 1, limits::kMaxInner);

  ConfigReader old_style = config->Object("sparse_attention_config");
  const BlockIndexerSpec indexer = ReadBlockIndexer(config, &old_style, norm);
  const std::vector<std::string> kinds = ReadAttentionKinds(config, &old_style, num_layers);
  const std::vector<bool> sparse = ReadSparseMlps(config, num_layers);
  for (size_t l = 0; config->ok() && l < kinds.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer_norm = layer.ffn_norm = norm;
    AttentionSpec own = attn;
    if (kinds[l] == kSparse) own.block_indexer = indexer;
    layer.mixer = own;
    layer.ffn = moe;
    if (!sparse[l]) layer.ffn = dense;
  }

  // The whole model's names as stored and as transformers holds them, and those of its text part alone.
  rules->Add("lm_head", "language_model.lm_head.weight");
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model."}) {
    AddNames(rules, prefix, moe.num_experts);
    IgnoreCommon(rules, config, prefix, num_layers);
  }
  for (const char* vision : {"vision_tower.*", "multi_modal_projector.*", "patch_merge_mlp.*"}) {
    rules->Ignore(vision, "vision");
    rules->Ignore(Cat("model.", vision), "vision");
  }
  for (const char* drafts : {"mtp.*", "*.mtp.*"}) rules->Ignore(drafts, "multi-token prediction");
}

}  // namespace moe
