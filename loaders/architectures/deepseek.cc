// DeepSeek-V2, V3 (with Kimi-K2 and sarvam-105b) and V3.2: latent attention, some dense layers, then experts behind a
// group-limited router, with shared ones. V3.2 adds an indexer to each layer.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"

namespace moe {
namespace {

// The first layers are dense, and every later one has experts.
std::vector<bool> ReadDenseFirst(ConfigReader* config, int64_t num_layers, int64_t dense_by_default) {
  const int64_t dense = config->IntOr("first_k_dense_replace", dense_by_default, 0, limits::kMaxLayers);
  // The authors' code makes dense layers of those between; a file of that code lacks the experts, which is an error.
  config->ExpectUnusedField("moe_layer_freq", 1);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense;
  return sparse;
}

void ReadV3(ConfigReader* config, ModelSpec* spec, TensorRules* rules, const DeepseekMoeDefaults& defaults,
            int64_t dense_by_default) {
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  const MlaSpec mla = ReadMla(config, *spec, {.reads_interleave = true});
  const MoeSpec moe = ReadDeepseekMoe(config, defaults);
  AddMlaLayers(config, spec, mla, moe, ReadDenseFirst(config, num_layers, dense_by_default));
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
}

}  // namespace

void ReadDeepseekV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 102400},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11008},
                  {"moe_intermediate_size", 1407},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"q_lora_rank", 1536},
                  {"n_routed_experts", 64},
                  {"max_position_embeddings", 2048},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  const MlaSpec mla = ReadMla(config, *spec, {});

  MoeSpec moe = ReadDeepseekMoe(config, {.score = RouterSpec::Score::kSoftmax, .n_shared_experts = 2});
  // The weights are left as they are; transformers does not read the field, and released files say false.
  if (config->BoolOr("norm_topk_prob", false)) {
    config->Unsupported("norm_topk_prob",
                        "is true: the authors' code lets the weights sum to one then, transformers does not; expected "
                        "false");
  }
  moe.router.normalize = RouterSpec::Normalize::kNone;
  moe.router.normalize_eps = 0;
  moe.router.group_score = RouterSpec::GroupScore::kMax;
  moe.router.others_weigh_zero = true;
  config->ExpectString("topk_method", {"greedy", "group_limited_greedy"});
  if (config->StringOr("topk_method", "greedy") == "greedy") moe.router.num_groups = moe.router.top_groups = 1;

  AddMlaLayers(config, spec, mla, moe, ReadDenseFirst(config, num_layers, 0));
  if (config->BoolOr("mlp_bias", false)) {
    for (LayerSpec& layer : spec->layers) {
      if (auto* mlp = std::get_if<MlpSpec>(&layer.ffn)) mlp->bias = true;
      if (auto* sparse = std::get_if<MoeSpec>(&layer.ffn); sparse && sparse->shared) sparse->shared->mlp.bias = true;
    }
  }
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
}

void ReadDeepseekV3(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 129280},
                  {"hidden_size", 7168},
                  {"intermediate_size", 18432},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 61},
                  {"num_attention_heads", 128},
                  {"q_lora_rank", 1536},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 4096},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadV3(config, spec, rules, {.routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4}, 3);
}

void ReadSarvamMla(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 262144},
                  {"hidden_size", 4096},
                  {"intermediate_size", 16384},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 64},
                  {"n_routed_experts", 128},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 4096},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  config->ExpectBool("use_qk_norm", true);  // those of the latents
  config->ExpectBool("moe_router_enable_expert_bias", true);
  ReadV3(config, spec, rules, {.routed_scaling_factor = 2.5}, 1);
}

void ReadDeepseekV32(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 129280},
                  {"hidden_size", 7168},
                  {"intermediate_size", 18432},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 61},
                  {"num_attention_heads", 128},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 163840},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  config->ExpectUnusedField("mlp_bias", false);
  MlaSpec mla = ReadMla(config, *spec, {.q_lora = 1536});
  mla.indexer = ReadIndexer(config, mla, {});
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4});
  config->ExpectUnusedField("moe_layer_freq", 1);
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 3));
  ReadLayerTypes(config, num_layers, {"indexed_attention"}, [](int64_t) { return "indexed_attention"; });
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
  AddIndexerNames(rules, "model.layers.{l}.self_attn.");
}

}  // namespace moe
