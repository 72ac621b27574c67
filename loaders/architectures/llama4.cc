// Llama-4: attention in aligned chunks with interleaved RoPE and a weightless norm of q and k behind it, every few
// layers over everything without positions but with a temperature; experts that see their input times the router's
// sigmoid; a shared expert; ordinary MLPs in the layers without experts.
#include "loaders/architectures/common.h"
#include "loaders/architectures/families.h"
#include "loaders/rope.h"

namespace moe {
namespace {

// no_rope_layers says 1 where a layer does rotate.
std::vector<bool> ReadRotatingLayers(ConfigReader* config, int64_t num_layers) {
  const int64_t interval = config->IntOr("no_rope_layer_interval", 4, 1, limits::kMaxLayers);
  const std::vector<int64_t> flags = config->IntList("no_rope_layers", 0, 1);
  if (config->ok() && !flags.empty() && static_cast<int64_t>(flags.size()) < num_layers) {
    config->Invalid("no_rope_layers", Cat("has ", flags.size(), " entries for ", num_layers, " layers"));
  }
  std::vector<bool> rotating(static_cast<size_t>(num_layers));
  for (size_t l = 0; config->ok() && l < rotating.size(); ++l) {
    rotating[l] = flags.empty() ? static_cast<int64_t>(l + 1) % interval != 0 : flags[l] != 0;
  }
  return rotating;
}

// Given as a list, or every interleave_moe_layer_step-th layer.
std::vector<bool> ReadExpertLayers(ConfigReader* config, int64_t num_layers) {
  const int64_t step = config->IntOr("interleave_moe_layer_step", 1, 1, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  if (config->Has("moe_layers")) {
    for (const int64_t l : config->IntList("moe_layers", 0, limits::kMaxLayers)) {
      if (l < num_layers) sparse[static_cast<size_t>(l)] = true;
    }
    return sparse;
  }
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = (l + 1) % step == 0;
  return sparse;
}

// A flag in transformers' class; released files have a number.
bool ReadTemperatureTuning(ConfigReader* config) {
  const char* field = "attn_temperature_tuning";
  if (config->TypeOf(field) == nlohmann::json::value_t::boolean) return config->Bool(field);
  return config->IntOr(field, 1, 0, limits::kMaxPositions) != 0;
}

MoeSpec ReadExperts(ConfigReader* config) {
  MoeSpec moe;
  moe.num_experts = ReadExpertCount(config);
  moe.top_k = ReadTopK(config);
  moe.weight_on_input = true;
  moe.expert.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner);
  moe.expert.activation = ReadGatedActivation(config);
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.select_by_logit = true;
  moe.shared = SharedExpertSpec{.mlp = moe.expert};
  return moe;
}

void AddNames(TensorRules* rules, const std::string& prefix, int64_t experts) {
  AddLlamaNames(rules, prefix);
  const std::string block = prefix + "layers.{l}.feed_forward.";
  AddGatedMlpNames(rules, "layers.{l}.mlp.", block);
  AddGatedMlpNames(rules, "layers.{l}.moe.shared.", block + "shared_expert.");
  rules->Add("layers.{l}.moe.router", block + "router.weight");
  const StoredLayout fused = Stacked(experts).Transposed();
  rules->Add("layers.{l}.moe.experts.{e}.gate", block + "experts.gate_up_proj", fused.Part(0, 2));
  rules->Add("layers.{l}.moe.experts.{e}.up", block + "experts.gate_up_proj", fused.Part(1, 2));
  rules->Add("layers.{l}.moe.experts.{e}.down", block + "experts.down_proj", fused);
  rules->AddExperts("layers.{l}.moe.experts.", block + "experts.", "gate_proj", "up_proj", "down_proj");
}

}  // namespace

void ReadLlama4(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 202048},
                  {"hidden_size", 5120},
                  {"intermediate_size", 8192},
                  {"num_hidden_layers", 48},
                  {"num_attention_heads", 40},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"num_experts_per_tok", 1},
                  {"num_local_experts", 16},
                  {"attention_chunk_size", 8192}});
  ReadBasics(config, spec);
  const int64_t num_layers = ReadLayerCount(config);
  const NormSpec norm = ReadRmsNorm(config, 1e-5);
  spec->final_norm = norm;

  AttentionSpec attn = ReadGroupedQueryAttention(config, *spec, 128);
  attn.qkv_bias = attn.output_bias = config->BoolOr("attention_bias", false);
  const RopeSpec rope = ReadRope(config, {.head_dim = attn.head_dim,
                                          .theta = 500000,
                                          .layout = RopeSpec::Layout::kInterleaved,
                                          .max_positions = spec->max_positions,
                                          .whole_head = true});
  const bool qk_norm = config->BoolOr("use_qk_norm", true);
  const bool tuning = ReadTemperatureTuning(config);
  PositionScale temperature{.kind = PositionScale::Kind::kLog, .offset = 1};
  temperature.beta = config->FloatOr("attn_scale", 0.1, -1e6, 1e6);
  temperature.period = config->FloatOr("floor_scale", 8192, 1, 1e12);
  const int64_t chunk = config->IntOr("attention_chunk_size", 0, 1, limits::kMaxPositions);
  const std::vector<bool> rotating = ReadRotatingLayers(config, num_layers);
  const std::vector<std::string> types =
      ReadLayerTypes(config, num_layers, {"full_attention", "chunked_attention"}, [&](int64_t l) {
        return rotating[static_cast<size_t>(l)] && chunk > 0 ? "chunked_attention" : "full_attention";
      });

  const MoeSpec moe = ReadExperts(config);
  MlpSpec dense = moe.expert;
  dense.intermediate_size = config->IntOr("intermediate_size_mlp", 16384, 1, limits::kMaxInner);
  const std::vector<bool> sparse = ReadExpertLayers(config, num_layers);
  for (size_t l = 0; config->ok() && l < sparse.size(); ++l) {
    LayerSpec& layer = spec->layers.emplace_back();
    AttentionSpec own = attn;
    if (rotating[l]) {
      own.rope = rope;
      if (qk_norm) {
        own.qk_norm = QkNorm::kPerHead;
        own.qk_norm_spec = {.eps = norm.eps, .weight = false};
        own.qk_norm_after_rope = true;
      }
    } else if (tuning) {
      own.query_scale = temperature;
    }
    if (types[l] == "chunked_attention") {
      own.chunk = chunk;
      if (chunk == 0) config->Invalid("attention_chunk_size", "is absent, but layer_types has chunked_attention");
    }
    layer.mixer = own;
    layer.mixer_norm = layer.ffn_norm = norm;
    if (sparse[l]) {
      layer.ffn = moe;
    } else {
      layer.ffn = dense;
    }
  }

  // Of the text model alone, and of the multimodal one.
  for (const char* prefix : {"model.", "language_model.model."}) {
    AddNames(rules, prefix, moe.num_experts);
    IgnoreCommon(rules, config, prefix, num_layers);
  }
  rules->Add("lm_head", "language_model.lm_head.weight");
  rules->Ignore("vision_model.*", "vision");
  rules->Ignore("multi_modal_projector.*", "vision");
}

}  // namespace moe
