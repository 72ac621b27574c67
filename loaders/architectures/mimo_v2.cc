// MiMo-V2: keys wider than values, a factor of the values, and in the layers with a window twice the key/value heads,
// sinks and a RoPE base of their own; DeepSeek's router without shared experts.
#include <algorithm>
#include <cmath>
#include <utility>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// 0 or 1 for each layer, the way released files say it; empty when absent.
std::vector<int64_t> ReadFlags(ConfigReader* config, const char* field, int64_t num_layers) {
  std::vector<int64_t> flags = config->IntList(field, 0, 1);
  if (config->ok() && !flags.empty() && static_cast<int64_t>(flags.size()) != num_layers) {
    config->Invalid(field, Cat("has ", flags.size(), " entries for ", num_layers, " layers"));
  }
  flags.resize(flags.empty() ? 0 : static_cast<size_t>(num_layers));
  return flags;
}

AttentionSpec ReadAttention(ConfigReader* config, const ModelSpec& spec, bool sliding) {
  AttentionSpec attn = ReadGroupedQueryAttention(config, spec, 192);
  attn.v_head_dim = config->IntOr("v_head_dim", 128, 1, limits::kMaxHeadDim);
  attn.qkv_bias = config->BoolOr("attention_bias", false);
  config->Assume({{"attention_value_scale", 0.707}});  // null: none
  attn.value_scale = static_cast<float>(config->FloatOr("attention_value_scale", 1.0, -1e6, 1e6));
  if (sliding) {
    attn.num_heads = config->IntOr("swa_num_attention_heads", attn.num_heads, 1, limits::kMaxHeads);
    attn.num_kv_heads = config->IntOr("swa_num_key_value_heads", 2 * attn.num_kv_heads, 1, limits::kMaxHeads);
    attn.head_dim = config->IntOr("swa_head_dim", attn.head_dim, 1, limits::kMaxHeadDim);
    attn.v_head_dim = config->IntOr("swa_v_head_dim", attn.v_head_dim, 1, limits::kMaxHeadDim);
    attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
    attn.window = config->IntOr("sliding_window", 129, 1, limits::kMaxPositions);
    // This many before the query's own.
    if (const auto before = config->OptionalInt("sliding_window_size", 1, limits::kMaxPositions - 1)) {
      attn.window = *before + 1;
    }
  }
  attn.sinks = sliding ? config->BoolOr("add_swa_attention_sink_bias", true)
                       : config->BoolOr("add_full_attention_sink_bias", false);
  RopeDefaults rope{.head_dim = attn.head_dim,
                    .theta = sliding ? 10000.0 : 5000000.0,
                    .partial_rotary_factor = 0.334,
                    .max_positions = spec.max_positions,
                    .layer_type = sliding ? kSliding : kFull};
  if (sliding) rope.theta_field = "swa_rope_theta";
  attn.rope = ReadRope(config, rope);
  return attn;
}

// MiMo-V2.5 stores q, k and v of a layer in one tensor, cut up for tensor parallelism: `shards` times the q rows of
// some heads, then their k and their v rows.
void AddShardedQkvNames(TensorRules* rules, const ModelSpec& spec, int64_t shards) {
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const auto& attn = std::get<AttentionSpec>(spec.layers[l].mixer);
    if (attn.num_heads % shards != 0 || attn.num_kv_heads % shards != 0) continue;
    const int64_t q = attn.num_heads / shards * attn.head_dim;
    const int64_t k = attn.num_kv_heads / shards * attn.head_dim;
    const int64_t v = attn.num_kv_heads / shards * attn.v_head_dim;
    const std::string in = Cat("model.layers.", l, ".self_attn.");
    int64_t begin = 0;
    for (const auto& [name, rows] : {std::pair<const char*, int64_t>{"q", q}, {"k", k}, {"v", v}}) {
      for (const auto& [suffix, part] : {std::pair<const char*, const char*>{"", "weight"}, {".bias", "bias"}}) {
        const std::string canonical = Cat("layers.", l, ".attn.", name, suffix);
        rules->Add(canonical, Cat(in, name, "_proj.", part));
        rules->Add(canonical, Cat(in, "qkv_proj.", part), HeadSlice(begin, rows, q + k + v));
      }
      begin += rows;
    }
  }
}

}  // namespace

void ReadMimoV2(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 152576},
                  {"hidden_size", 4096},
                  {"intermediate_size", 16384},
                  {"moe_intermediate_size", 2048},
                  {"num_hidden_layers", 48},
                  {"num_attention_heads", 64},
                  {"num_key_value_heads", 4},
                  {"max_position_embeddings", 131072},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm{.eps = static_cast<float>(config->FloatOr({"rms_norm_eps", "layernorm_epsilon"}, 1e-5, 0, 1))};
  spec->final_norm = norm;

  const std::vector<int64_t> pattern = ReadFlags(config, "hybrid_layer_pattern", num_layers);
  const std::vector<std::string> types = ReadLayerTypes(config, num_layers, {kFull, kSliding}, [&](int64_t l) {
    const bool full = pattern.empty() ? l == 0 || (l + 1) % 6 == 0 : pattern[static_cast<size_t>(l)] == 0;
    return full ? kFull : kSliding;
  });
  std::vector<bool> sparse = ReadMlpLayerTypes(config, num_layers, 1);
  const std::vector<int64_t> frequency = ReadFlags(config, "moe_layer_freq", num_layers);
  if (!config->Has("mlp_layer_types") && !frequency.empty()) sparse.assign(frequency.begin(), frequency.end());

  // Only what the model has is read: a file may say nothing about layers with a window.
  const bool slides = std::find(types.begin(), types.end(), kSliding) != types.end();
  const AttentionSpec full = ReadAttention(config, *spec, false);
  const AttentionSpec sliding = slides ? ReadAttention(config, *spec, true) : full;
  const MoeSpec moe = ReadDeepseekMoe(config, {.n_shared_experts = 0});
  AddPreNormLayers(config, spec, norm, full, moe, sparse);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    if (types[l] == kSliding) spec->layers[l].mixer = sliding;
  }

  AddLlamaNames(rules);
  if (config->ok()) AddShardedQkvNames(rules, *spec, full.num_kv_heads);
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.attention_sink_bias");
  rules->Add("layers.{l}.attn.sinks", "model.layers.{l}.self_attn.sinks");
  AddDeepseekMoeNames(rules, "model.layers.{l}.mlp.", moe.num_experts);
  IgnoreCommon(rules, config, "model.", num_layers);
  rules->Ignore("model.mtp.*", "multi-token prediction");
}

}  // namespace moe
