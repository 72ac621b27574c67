// GLM-4.7-Flash and GLM-5: DeepSeek-V3's latent attention and experts; GLM-5 with an indexer whose choice several
// layers may share.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

// Whether each layer has an indexer of its own: indexer_types, or a pattern of letters or kinds, or one layer in
// index_topk_freq.
std::vector<bool> ReadIndexerTypes(ConfigReader* config, int64_t num_layers) {
  std::vector<bool> own;
  const auto add = [&](const char* field, const std::string& kind) {
    if (kind != "full" && kind != "shared" && kind != "F" && kind != "S") {
      config->Unsupported(field, Cat("has the kind ", Quoted(kind), "; supported: full (F), shared (S)"));
    }
    own.push_back(kind == "full" || kind == "F");
  };
  const char* field = "indexer_types";
  for (const std::string& kind : config->StringList(field)) add(field, kind);
  if (own.empty() && config->Has("index_topk_pattern")) {
    field = "index_topk_pattern";
    for (const char letter : config->StringOr(field, "")) add(field, std::string(1, letter));
  }
  if (own.empty()) {
    const int64_t every = config->IntOr("index_topk_freq", 1, 0, limits::kMaxLayers);
    const int64_t offset = config->IntOr("index_skip_topk_offset", 2, 0, limits::kMaxLayers);
    for (int64_t l = 0; l < num_layers; ++l) {
      own.push_back(std::max<int64_t>(l - offset + 1, 0) % std::max<int64_t>(every, 1) == 0);
    }
  }
  if (config->ok() && static_cast<int64_t>(own.size()) != num_layers) {
    config->Invalid(field, Cat("has ", own.size(), " entries, expected one for each of the ", num_layers, " layers"));
  }
  if (config->ok() && !own[0]) config->Invalid(field, "layer 0 has no earlier layer to share with");
  return own;
}

}  // namespace

void ReadGlm4MoeLite(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 154880},
                  {"hidden_size", 2048},
                  {"intermediate_size", 10240},
                  {"moe_intermediate_size", 1536},
                  {"num_hidden_layers", 47},
                  {"num_attention_heads", 20},
                  {"q_lora_rank", 768},
                  {"n_routed_experts", 64},
                  {"num_experts_per_tok", 4},
                  {"max_position_embeddings", 202752},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-5);
  const MlaSpec mla = ReadMla(config, *spec, {.nope_dim = 192, .v_dim = 256, .reads_interleave = true});
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 1.8});
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 1));
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
}

void ReadGlmMoeDsa(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 154880},
                  {"hidden_size", 6144},
                  {"intermediate_size", 12288},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 78},
                  {"num_attention_heads", 64},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 202752},
                  {"bos_token_id", 0},
                  {"eos_token_id", 1}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-5);
  MlaSpec mla = ReadMla(config, *spec, {.q_lora = 2048, .nope_dim = 192, .v_dim = 256});
  config->ExpectBool("indexer_rope_interleave", true);
  config->ExpectUnusedField("mlp_bias", false);
  mla.indexer = ReadIndexer(config, mla, {.num_heads = 32, .layout = RopeSpec::Layout::kInterleaved});
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5});
  AddMlaLayers(config, spec, mla, moe, ReadMlpLayerTypes(config, num_layers, 3));
  ReadLayerTypes(config, num_layers, {"indexed_attention"}, [](int64_t) { return "indexed_attention"; });
  const std::vector<bool> own = ReadIndexerTypes(config, num_layers);
  int64_t last = 0;
  for (size_t l = 0; config->ok() && l < spec->layers.size(); ++l) {
    if (own[l]) last = static_cast<int64_t>(l);
    if (!own[l]) std::get<MlaSpec>(spec->layers[l].mixer).indexer->share_with_layer = last;
  }
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
  AddIndexerNames(rules, "model.layers.{l}.self_attn.");
}

}  // namespace moe
