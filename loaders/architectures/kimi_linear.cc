// Kimi-Linear: Kimi delta attention (a gated delta rule that forgets by channel) between layers of latent attention
// without positions, one dense layer, then experts behind DeepSeek-V3's router.
#include "loaders/architectures/common.h"
#include "loaders/architectures/delta_names.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kLinear[] = "linear_attention";
constexpr char kFull[] = "full_attention";

// The released files have the delta layers' settings in an object of their own.
GatedDeltaSpec ReadKimiDelta(ConfigReader* config, ConfigReader* linear, const NormSpec& norm) {
  GatedDeltaSpec delta;
  const int64_t head_dim = config->IntOr("linear_head_dim", 128, 1, limits::kMaxHeadDim);
  const int64_t heads = config->IntOr("linear_num_heads", 32, 1, limits::kMaxHeads);
  const int64_t kernel = config->IntOr("linear_conv_kernel_dim", 4, 1, 64);
  delta.k_head_dim = delta.v_head_dim = linear->IntOr("head_dim", head_dim, 1, limits::kMaxHeadDim);
  delta.num_k_heads = delta.num_v_heads = linear->IntOr("num_heads", heads, 1, limits::kMaxHeads);
  delta.conv_kernel = linear->IntOr("short_conv_kernel_size", kernel, 1, 64);
  delta.decay = GatedDeltaSpec::Decay::kChannel;
  delta.decay_rank = delta.gate_rank = delta.k_head_dim;
  delta.output_gate = GatedDeltaSpec::OutputGate::kSigmoid;
  delta.norm = norm;
  return delta;
}

// layer_types, else the lists of the released files, which count from 1, else every fourth layer but the first.
std::vector<std::string> ReadTypes(ConfigReader* config, ConfigReader* linear, int64_t num_layers) {
  std::vector<std::string> listed;
  if (linear->Has("full_attn_layers") && linear->Has("kda_layers")) {
    listed.resize(static_cast<size_t>(num_layers));
    for (const int64_t l : linear->IntList("full_attn_layers", 1, num_layers))
      listed[static_cast<size_t>(l - 1)] = kFull;
    for (const int64_t l : linear->IntList("kda_layers", 1, num_layers)) listed[static_cast<size_t>(l - 1)] = kLinear;
  }
  std::vector<std::string> types = ReadLayerTypes(config, num_layers, {kLinear, kFull}, [&](int64_t l) {
    if (!listed.empty()) return listed[static_cast<size_t>(l)];
    return std::string(l > 0 && l % 4 == 0 ? kFull : kLinear);
  });
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    if (types[static_cast<size_t>(l)].empty()) {
      linear->Invalid("kda_layers", Cat("layer ", l + 1, " is neither there nor in full_attn_layers"));
    }
  }
  return types;
}

}  // namespace

void ReadKimiLinear(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  const int64_t positions = config->IntOr("model_max_length", 1048576, 1, limits::kMaxPositions);
  config->Assume({{"vocab_size", 163840},
                  {"hidden_size", 2304},
                  {"intermediate_size", 9216},
                  {"moe_intermediate_size", 1024},
                  {"num_hidden_layers", 27},
                  {"num_attention_heads", 32},
                  {"num_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", positions}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  config->ExpectString("hidden_act", {"silu"});
  config->ExpectUnusedField("mla_use_nope", true);
  ExpectUnscaledRope(config);
  if (config->IntOr("moe_layer_freq", 1, 1, limits::kMaxLayers) != 1) {
    config->Unsupported("moe_layer_freq", "experts in some of the later layers only are not supported; expected 1");
  }
  const NormSpec norm = spec->final_norm = ReadRmsNorm(config, 1e-5);
  ConfigReader linear = config->Object("linear_attn_config");
  const GatedDeltaSpec delta = ReadKimiDelta(config, &linear, norm);
  const MlaSpec mla = ReadMla(config, *spec, {.rope = false});
  const MoeSpec moe = ReadDeepseekMoe(config, {.routed_scaling_factor = 2.446});
  if (moe.router.num_groups > 1) config->ExpectBool("use_grouped_topk", true);
  const std::vector<std::string> types = ReadTypes(config, &linear, num_layers);
  const std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, 1);
  AddMlaLayers(config, spec, mla, moe, sparse);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    if (types[l] == kLinear) spec->layers[l].mixer = delta;
  }

  AddLlamaNames(rules);
  const std::string attention = "model.layers.{l}.self_attn.";
  AddKimiDeltaNames(rules, attention, delta, "o_proj");
  AddMlaNames(rules, attention, mla);
  const std::string block = "model.layers.{l}.block_sparse_moe.";
  rules->Add("layers.{l}.moe.router", block + "gate.weight");
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.e_score_correction_bias");
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "w1", "w3", "w2");
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_experts.");
  // The dense layers, which transformers 5 saves under the other name, and the rest as it holds it.
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
