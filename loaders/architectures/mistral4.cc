// Mistral 4: DeepSeek's latent attention with a query factor that grows with the position, and a softmax router over
// groups whose chosen weights are normalised.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"

namespace moe {

void ReadMistral4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 131072},
                  {"hidden_size", 4096},
                  {"intermediate_size", 12288},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 36},
                  {"num_attention_heads", 32},
                  {"q_lora_rank", 1024},
                  {"n_routed_experts", 128},
                  {"num_experts_per_tok", 4},
                  {"max_position_embeddings", 1048576},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2}});
  if (!config->Has({"rope_parameters", "rope_scaling", "rope_theta"})) {
    config->Assume({{"rope_parameters",
                     {{"rope_type", "yarn"},
                      {"rope_theta", 10000.0},
                      {"factor", 128.0},
                      {"original_max_position_embeddings", 8192},
                      {"mscale", 1.0},
                      {"mscale_all_dim", 1.0},
                      {"llama_4_scaling_beta", 0.1}}}});
  }
  if (config->IsNull("rope_parameters") && !config->Has({"rope_parameters", "rope_scaling"})) {
    config->Unsupported("rope_parameters", "is null; expected the settings, or no such field");
  }
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  MlaSpec mla =
      ReadMla(config, *spec, {.kv_lora = 256, .nope_dim = 64, .reads_interleave = true, .whole_head_partial = true});
  ConfigReader rope = config->Object("rope_parameters");
  if (!rope.exists()) rope = config->Object("rope_scaling");
  if (const auto beta = rope.OptionalFloat("llama_4_scaling_beta", 0, 1e6)) {
    mla.query_scale = {
        .kind = PositionScale::Kind::kLog,
        .beta = *beta,
        .period = rope.FloatOr("original_max_position_embeddings", static_cast<double>(spec->max_positions), 1, 1e12)};
  }
  const MoeSpec moe = ReadDeepseekMoe(config, {.score = RouterSpec::Score::kSoftmax});
  const int64_t dense = config->IntOr("first_k_dense_replace", 0, 0, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = l >= dense;
  AddMlaLayers(config, spec, mla, moe, sparse);
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
}

}  // namespace moe
