// A.X-K1: DeepSeek-V3 with a norm on the output of the experts' block. A.X-K2: DeepSeek-V3.2 with an output gate that
// is projected together with q, and low-rank gates on the normed inputs of attention and experts.
#include <utility>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"

namespace moe {
namespace {

// mlp_layer_types, or experts in every moe_layer_freq-th layer behind the first dense ones.
std::vector<bool> ReadSparse(ConfigReader* config, int64_t num_layers) {
  std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, 1);
  const int64_t every = config->IntOr("moe_layer_freq", 1, 1, limits::kMaxLayers);
  for (int64_t l = 0; !config->Has("mlp_layer_types") && l < num_layers; ++l) {
    if (l % every != 0) sparse[static_cast<size_t>(l)] = false;
  }
  return sparse;
}

}  // namespace

void ReadAxK1(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 163840},
                  {"hidden_size", 7168},
                  {"intermediate_size", 18432},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 61},
                  {"num_attention_heads", 64},
                  {"n_routed_experts", 192},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 32768},
                  {"bos_token_id", 163691},
                  {"eos_token_id", 163691}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = norm;
  const MlaSpec mla = ReadMla(config, *spec, {.q_lora = 1536, .reads_interleave = true});
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4});
  const std::vector<bool> sparse = ReadSparse(config, num_layers);
  AddMlaLayers(config, spec, mla, moe, sparse);
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
  rules->AllowNoSelectBias();
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    const std::string name = Cat("model.layers.", l, ".post_mlp_layernorm.weight");
    if (sparse[l]) {
      spec->layers[l].ffn_post_norm = norm;
    } else {
      rules->Ignore(name, "a norm that dense layers do not use");
    }
  }
  rules->Add("layers.{l}.ffn_post_norm", "model.layers.{l}.post_mlp_layernorm.weight");
  rules->Add("layers.{l}.ffn_post_norm", "model.layers.{l}.mlp.post_mlp_layernorm.weight");
}

void ReadAxK2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 163840},
                  {"hidden_size", 2048},
                  {"intermediate_size", 5120},
                  {"moe_intermediate_size", 512},
                  {"num_hidden_layers", 48},
                  {"num_attention_heads", 32},
                  {"n_routed_experts", 128},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 131072},
                  {"bos_token_id", 163691},
                  {"eos_token_id", 163691}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  spec->final_norm = ReadRmsNorm(config, 1e-6);
  MlaSpec mla = ReadMla(config, *spec, {.q_lora = 384, .kv_lora = 128, .nope_dim = 64, .rope_dim = 32, .v_dim = 64});
  mla.q_reads_raw_latent = mla.gate_from_q_lora = true;
  mla.gate = AttentionGate::kElementSigmoid;
  mla.indexer = ReadIndexer(config, mla, {.num_heads = 16});
  MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.5});
  moe.router.others_score_zero = true;
  const std::vector<bool> sparse = ReadSparse(config, num_layers);
  ReadLayerTypes(config, num_layers, {"indexed_attention"}, [](int64_t) { return "indexed_attention"; });
  AddMlaLayers(config, spec, mla, moe, sparse);
  const int64_t rank = config->IntOr("gated_norm_rank", 16, 1, limits::kMaxWidth);
  for (LayerSpec& layer : spec->layers) {
    layer.mixer_norm_gate = rank;
    if (std::holds_alternative<MoeSpec>(layer.ffn)) layer.ffn_norm_gate = rank;
  }

  // Before Llama's names of the same norms, which are those of the dense layers.
  const std::pair<const char*, const char*> norms[] = {{"mixer_norm", "input_layernorm."},
                                                       {"ffn_norm", "post_attention_layernorm."}};
  for (const auto& [canonical, name] : norms) {
    const std::string out = Cat("layers.{l}.", canonical);
    const std::string in = Cat("model.layers.{l}.", name);
    rules->Add(out, in + "norm.weight");
    rules->Add(out + ".gate_down", in + "W_down.weight");
    rules->Add(out + ".gate_down", in + "mlp.fc1.weight");
    rules->Add(out + ".gate_up", in + "W_up.weight");
    rules->Add(out + ".gate_up", in + "mlp.fc2.weight");
  }
  AddDeepseekNames(rules, config, mla, moe.num_experts, num_layers);
  AddIndexerNames(rules, "model.layers.{l}.self_attn.");
}

}  // namespace moe
