// Inkling (text): no RoPE but a learnt bias by distance, short convolutions behind k, v and both blocks, shared experts
// that the router weights together with the chosen ones.
#include <algorithm>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/inkling.h"
#include "loaders/rope.h"

namespace moe {
namespace {

constexpr char kFull[] = "hybrid";
constexpr char kSliding[] = "hybrid_sliding";

// What local_layer_ids says of a layer, else all but every sixth slide.
std::string DefaultLayerType(ConfigReader* config, int64_t l) {
  bool sliding = (l + 1) % 6 != 0;
  if (config->Has("local_layer_ids")) {
    const std::vector<int64_t> local = config->IntList("local_layer_ids", 0, limits::kMaxLayers);
    sliding = std::find(local.begin(), local.end(), l) != local.end();
  }
  return sliding ? kSliding : kFull;
}

AttentionSpec ReadAttention(ConfigReader* config, const NormSpec& norm, bool sliding) {
  AttentionSpec attn;
  attn.num_heads = config->IntOr(sliding ? "swa_num_attention_heads" : "num_attention_heads", 64, 1, limits::kMaxHeads);
  attn.num_kv_heads = config->IntOr(sliding ? "swa_num_key_value_heads" : "num_key_value_heads", sliding ? 16 : 8, 1,
                                    limits::kMaxHeads);
  attn.head_dim = config->IntOr(sliding ? "swa_head_dim" : "head_dim", 128, 1, limits::kMaxHeadDim);
  attn.v_head_dim = attn.head_dim;
  attn.scale = 1.0f / static_cast<float>(attn.head_dim);
  attn.qk_norm = QkNorm::kPerHead;
  attn.qk_norm_spec = norm;
  attn.kv_conv = config->IntOr({"conv_kernel_size", "sconv_kernel_size"}, 4, 1, Mamba2Spec::kMaxConvKernel);
  attn.relative_bias = RelativeBiasSpec{.dim = config->IntOr("d_rel", 16, 1, limits::kMaxHeadDim),
                                        .extent = config->IntOr("rel_extent", 1024, 1, limits::kMaxPositions)};
  if (sliding) {
    attn.window = config->IntOr({"sliding_window_size", "sliding_window"}, 512, 1, limits::kMaxPositions);
    attn.relative_bias->extent = attn.window;
  } else if (const auto floor = config->OptionalInt("log_scaling_n_floor", 1, limits::kMaxPositions)) {
    attn.query_scale = {.kind = PositionScale::Kind::kLogAbove,
                        .beta = config->FloatOr("log_scaling_alpha", 0.1, -1e6, 1e6),
                        .period = static_cast<double>(*floor),
                        .offset = 1};
  }
  return attn;
}

MoeSpec ReadMoe(ConfigReader* config, int64_t intermediate) {
  constexpr int64_t kMaxShared = 1024;
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.expert = {.intermediate_size = intermediate, .activation = ReadGatedActivation(config)};
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_bias = true;
  // rms_norm_eps_moe_gate is in the files too, but no norm has it.
  config->ExpectUnusedField("shared_expert_sink", true);
  moe.router.sinks = config->IntOr("n_shared_experts", 2, 1, kMaxShared);
  moe.router.weight_scale = true;
  moe.router.scale = static_cast<float>(config->FloatOr("route_scale", 8.0, -1e6, 1e6));
  moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = moe.router.sinks, .router_weighted = true};
  return moe;
}

}  // namespace

void ReadInkling(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 201024},
                  {"hidden_size", 6144},
                  {"num_hidden_layers", 66},
                  {"max_position_embeddings", config->IntOr("model_max_length", 131072, 1, limits::kMaxPositions)},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 6}});
  ReadBasics(config, spec);
  spec->tied_head = false;
  ExpectUnscaledRope(config);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-6);
  spec->final_norm = spec->embedding_norm = norm;
  spec->logit_scale = static_cast<float>(
      1.0 / config->FloatOr({"logits_mup_width_multiplier", "embedding_multiplier"}, 24.0, 1e-6, 1e6));
  const int64_t head_rows = config->IntOr("unpadded_vocab_size", 0, 1, limits::kMaxVocab);
  if (head_rows < spec->vocab_size) spec->head_rows = head_rows;

  // Files with a width of their own for the dense layers mean the experts' by intermediate_size.
  const auto dense_width = config->OptionalInt("dense_intermediate_size", 1, limits::kMaxInner);
  const int64_t width = config->IntOr("intermediate_size", 24576, 1, limits::kMaxInner);
  const MoeSpec moe =
      ReadMoe(config, dense_width ? width : config->IntOr("moe_intermediate_size", 3072, 1, limits::kMaxInner));
  const MlpSpec mlp{.intermediate_size = dense_width.value_or(width), .activation = moe.expert.activation};

  const AttentionSpec full = ReadAttention(config, norm, false);
  const AttentionSpec sliding = ReadAttention(config, norm, true);
  const std::vector<std::string> types = ReadLayerTypes(config, num_layers, {kFull, kSliding},
                                                        [config](int64_t l) { return DefaultLayerType(config, l); });
  const std::vector<bool> sparse =
      ReadMlpLayerTypes(config, num_layers, config->IntOr("dense_mlp_idx", 0, 0, limits::kMaxLayers));
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    layer.mixer = types[static_cast<size_t>(l)] == kSliding ? sliding : full;
    layer.mixer_norm = layer.ffn_norm = norm;
    layer.mixer_conv = layer.ffn_conv = full.kv_conv;
    if (sparse[static_cast<size_t>(l)]) {
      layer.ffn = moe;
    } else {
      layer.ffn = mlp;
      layer.ffn_scale = true;
    }
  }

  AddInklingNames(rules, *spec, moe);
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
