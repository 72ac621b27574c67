// Inkling (text): no RoPE but a learnt bias by distance, short convolutions behind k, v and both blocks, shared experts
// that the router weights together with the chosen ones.
#include <algorithm>

#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"

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
  // shared_expert_sink and rms_norm_eps_moe_gate are in the files, but nothing reads them.
  moe.router.sinks = config->IntOr("n_shared_experts", 2, 1, kMaxShared);
  moe.router.weight_scale = true;
  moe.router.scale = static_cast<float>(config->FloatOr("route_scale", 8.0, -1e6, 1e6));
  moe.shared = SharedExpertSpec{.mlp = moe.expert, .count = moe.router.sinks, .router_weighted = true};
  return moe;
}

// As transformers saves them, under PREFIX.
void AddNames(TensorRules* rules, const std::string& prefix, const MoeSpec& moe) {
  const std::string layer = prefix + "layers.{l}.";
  const std::string attention = layer + "self_attn.";
  const std::string block = layer + "mlp.";
  const int64_t choices = moe.num_experts + moe.router.sinks;
  AddLlamaNames(rules, prefix);
  rules->Add("embed_norm", prefix + "embed_tokens.embed_norm.weight");
  rules->Add("layers.{l}.attn.r", attention + "r_proj.weight");
  rules->Add("layers.{l}.attn.relative", attention + "rel_logits_proj.proj");
  rules->Add("layers.{l}.attn.conv_k", attention + "k_sconv.conv1d.weight");
  rules->Add("layers.{l}.attn.conv_v", attention + "v_sconv.conv1d.weight");
  rules->Add("layers.{l}.mixer.conv", layer + "attn_sconv.conv1d.weight");
  rules->Add("layers.{l}.ffn.conv", layer + "mlp_sconv.conv1d.weight");
  rules->Add("layers.{l}.moe.router", block + "gate.weight", RowSlice(0, choices));
  rules->Add("layers.{l}.moe.router.sinks", block + "gate.weight", RowSlice(moe.num_experts, choices));
  rules->Add("layers.{l}.moe.router.weight_scale", block + "gate.global_scale");
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.e_score_correction_bias");
  rules->AddFusedExperts("layers.{l}.moe.experts.", block + "experts.gate_up_proj", block + "experts.down_proj",
                         moe.num_experts);
  for (const char* name : {"gate", "up", "down"}) {
    rules->Add(Cat("layers.{l}.moe.shared.{e}.", name), Cat(block, "shared_experts.", name, "_proj"),
               Stacked(moe.router.sinks));
  }
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
  rules->Add("layers.{l}.ffn_scale", block + "global_scale");
}

// As the released checkpoints have them, with the rows of gate and up in turn.
void AddReleasedNames(TensorRules* rules, const MoeSpec& moe) {
  const std::string layer = "model.llm.layers.{l}.";
  const std::string attention = layer + "attn.";
  const std::string block = layer + "mlp.";
  const int64_t choices = moe.num_experts + moe.router.sinks;
  const auto add_pair = [&](const std::string& out, const std::string& in, const StoredLayout& layout) {
    rules->Add(out + "gate", in, layout.Part(0, 2).Interleaved());
    rules->Add(out + "up", in, layout.Part(1, 2).Interleaved());
  };
  rules->Add("embed", "model.llm.embed.weight");
  rules->Add("embed_norm", "model.llm.embed_norm.weight");
  rules->Add("final_norm", "model.llm.norm.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "attn_norm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "mlp_norm.weight");
  rules->Add("layers.{l}.attn.q", attention + "wq_du.weight");
  rules->Add("layers.{l}.attn.k", attention + "wk_dv.weight");
  rules->Add("layers.{l}.attn.v", attention + "wv_dv.weight");
  rules->Add("layers.{l}.attn.r", attention + "wr_du.weight");
  rules->Add("layers.{l}.attn.o", attention + "wo_ud.weight");
  rules->Add("layers.{l}.attn.q_norm", attention + "q_norm.weight");
  rules->Add("layers.{l}.attn.k_norm", attention + "k_norm.weight");
  rules->Add("layers.{l}.attn.conv_k", attention + "k_sconv.weight");
  rules->Add("layers.{l}.attn.conv_v", attention + "v_sconv.weight");
  rules->Add("layers.{l}.attn.relative", attention + "rel_logits_proj.proj");
  rules->Add("layers.{l}.mixer.conv", layer + "attn_sconv.weight");
  rules->Add("layers.{l}.ffn.conv", layer + "mlp_sconv.weight");
  rules->Add("layers.{l}.moe.router", block + "gate.weight", RowSlice(0, choices));
  rules->Add("layers.{l}.moe.router.sinks", block + "gate.weight", RowSlice(moe.num_experts, choices));
  rules->Add("layers.{l}.moe.router.weight_scale", block + "gate.global_scale");
  rules->Add("layers.{l}.moe.router.select_bias", block + "gate.bias");
  add_pair("layers.{l}.moe.experts.{e}.", block + "experts.w13_weight", Stacked(moe.num_experts));
  rules->Add("layers.{l}.moe.experts.{e}.down", block + "experts.w2_weight", Stacked(moe.num_experts));
  add_pair("layers.{l}.moe.shared.{e}.", block + "shared_experts.shared_w13_weight", Stacked(moe.router.sinks));
  rules->Add("layers.{l}.moe.shared.{e}.down", block + "shared_experts.shared_w2_weight", Stacked(moe.router.sinks));
  add_pair("layers.{l}.mlp.", block + "w13_dn.weight", Plain());
  rules->Add("layers.{l}.mlp.down", block + "w2_md.weight");
  rules->Add("layers.{l}.ffn_scale", block + "global_scale");
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

  const bool multimodal = spec->architecture != "InklingForCausalLM";
  AddNames(rules, multimodal ? "model.language_model." : "model.", moe);
  if (multimodal) AddReleasedNames(rules, moe);
  // A head of all the vocabulary's rows, of which the last are padding, or of the others alone.
  for (const char* name : {"lm_head.weight", "model.llm.unembed.weight"}) {
    rules->Add("lm_head", name);
    rules->Add("lm_head", name, RowSlice(0, spec->vocab_size));
  }
  for (const char* tower : {"visual", "audio", "vision_tower", "audio_tower"}) {
    rules->Ignore(Cat("model.", tower, ".*"), "vision and audio");
  }
  rules->Ignore("model.mtp.*", "multi-token prediction");
  IgnoreCommon(rules, config, "model.", num_layers);
}

}  // namespace moe
