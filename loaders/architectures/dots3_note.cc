// Dots-3 Note, the text model: latent attention whose latents are scaled and whose key's rope part has a norm, with a
// gate per head; most layers have an indexer or a window of dimensions of their own; DeepSeek-V3's experts.
#include <cmath>

#include "loaders/architectures/common.h"
#include "loaders/architectures/dots3_note_layers.h"
#include "loaders/architectures/families.h"
#include "loaders/architectures/mla.h"
#include "loaders/rope.h"

namespace moe {
namespace {

using Json = nlohmann::json;

// What layers with a window have in place of the model's fields, under old files' names; later files say it layer by
// layer.
Json ReadWindowedFields(ConfigReader* config) {
  const std::pair<const char*, int64_t> fields[] = {
      {"num_attention_heads", 64}, {"num_key_value_heads", 64}, {"q_lora_rank", 1024}, {"kv_lora_rank", 1024},
      {"head_dim", 256},           {"qk_nope_head_dim", 192},   {"v_head_dim", 128}};
  Json result = Json::object();
  for (const auto& [name, otherwise] : fields) {
    result[name] = config->IntOr(Cat("swa_", name).c_str(), otherwise, 1, limits::kMaxWidth);
  }
  const int64_t rotated = result["head_dim"].get<int64_t>() - result["qk_nope_head_dim"].get<int64_t>();
  result["qk_rope_head_dim"] = config->IntOr("swa_qk_rope_head_dim", rotated, 1, limits::kMaxWidth);
  result["attention_bias"] = config->BoolOr("attention_bias", false);
  return result;
}

RopeSpec ReadLayerRope(ConfigReader* config, const ModelSpec& spec, const std::string& kind, int64_t rope_dim) {
  const bool given = config->Has("rope_parameters") || config->Has("rope_scaling");
  const bool own_base = kind == kDots3Sliding && !given;
  return ReadRope(config, {.head_dim = rope_dim,
                           .theta = own_base ? 5e4 : 8e7,
                           .layout = RopeSpec::Layout::kInterleaved,
                           .max_positions = spec.max_positions,
                           .layer_type = kind,
                           .ignore_partial = true,
                           .theta_field = own_base ? "swa_rope_theta" : "rope_theta"});
}

// `own`: the layer's fields.
MlaSpec ReadLayerMla(ConfigReader* config, ConfigReader* own, const ModelSpec& spec, const std::string& kind) {
  MlaSpec mla = ReadMla(own, spec, {.q_lora = 1024, .rope = false, .latent_norm_eps = spec.final_norm.eps});
  const int64_t kv_heads = own->IntOr("num_key_value_heads", mla.num_heads, 1, limits::kMaxHeads);
  if (config->ok() && kv_heads != mla.num_heads) {
    own->Unsupported("num_key_value_heads",
                     Cat("is ", kv_heads, ", expected num_attention_heads (", mla.num_heads, ")"));
  }
  if (own->IsNull("q_lora_rank"))
    own->Unsupported("q_lora_rank", "is null; this architecture projects q from a latent");
  if (!config->ok()) return mla;
  const auto hidden = static_cast<double>(spec.hidden_size);
  mla.q_scale = static_cast<float>(std::sqrt(hidden / static_cast<double>(mla.q_lora)));
  mla.kv_scale = static_cast<float>(std::sqrt(hidden / static_cast<double>(mla.kv_lora)));
  mla.k_rope_norm = mla.kv_norm;
  mla.gate = AttentionGate::kHeadSigmoid;
  mla.rope = ReadLayerRope(config, spec, kind, mla.rope_dim);
  if (kind == kDots3Indexed) mla.indexer = ReadIndexer(config, mla, {.layout = RopeSpec::Layout::kInterleaved});
  if (kind == kDots3Sliding) {
    mla.window = config->IntOr("sliding_window", config->IntOr("sliding_window_size", 512, 1, limits::kMaxPositions), 1,
                               limits::kMaxPositions);
  }
  return mla;
}

MoeSpec ReadMoe(ConfigReader* config) {
  MoeSpec moe = ReadDeepseekMoe(config, {});
  if (config->ok() && !moe.shared) config->Unsupported("n_shared_experts", "is 0");
  if (!config->ok()) return moe;
  moe.shared->mlp.intermediate_size =
      moe.shared->count * config->IntOr({"shared_experts_intermediate_size", "moe_shared_expert_intermediate_size"},
                                        1536, 1, limits::kMaxInner);
  return moe;
}

}  // namespace

void ReadDots3Note(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  config->Assume({{"vocab_size", 152064},
                  {"hidden_size", 5120},
                  {"intermediate_size", 13824},
                  {"moe_intermediate_size", 1536},
                  {"num_hidden_layers", 46},
                  {"num_attention_heads", 128},
                  {"n_routed_experts", 256},
                  {"num_experts_per_tok", 8},
                  {"max_position_embeddings", 524288},
                  {"bos_token_id", 151643},
                  {"eos_token_id", 151668}});
  ReadBasics(config, spec);
  const int64_t num_layers = config->Int("num_hidden_layers", 1, limits::kMaxLayers);
  spec->final_norm = ReadRmsNorm(config, 1e-5);
  config->ExpectUnusedField("mlp_bias", false);  // the vision tower's MLPs go by it
  const std::vector<std::string> kinds = ReadDots3Kinds(config, num_layers);
  const std::vector<bool> sparse = ReadDots3Sparse(config, num_layers);
  const MoeSpec moe = ReadMoe(config);
  const Json windowed = config->Has("per_layer_config") ? Json() : ReadWindowedFields(config);
  for (int64_t l = 0; config->ok() && l < num_layers; ++l) {
    const std::string& kind = kinds[static_cast<size_t>(l)];
    ConfigReader own = config->PerLayer(l, {"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank",
                                            "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"});
    if (kind == kDots3Sliding && windowed.is_object()) own = config->Over(&windowed, "swa_");
    LayerSpec& layer = spec->layers.emplace_back();
    const MlaSpec mla = ReadLayerMla(config, &own, *spec, kind);
    layer.mixer = mla;
    layer.mixer_norm = layer.ffn_norm = spec->final_norm;
    layer.ffn = moe;
    if (!sparse[static_cast<size_t>(l)]) {
      layer.ffn = MlpSpec{.intermediate_size = config->Int("intermediate_size", 1, limits::kMaxInner),
                          .activation = moe.expert.activation};
    }
  }

  for (const std::string prefix : {"model.", "model.language_model."}) {
    const std::string attn = prefix + "layers.{l}.self_attn.";
    AddLlamaNames(rules, prefix);
    AddDeepseekMoeNames(rules, prefix + "layers.{l}.mlp.", moe.num_experts);
    AddIndexerNames(rules, attn);
    rules->Add("layers.{l}.mla.k_rope_norm", attn + "k_rope_only_layernorm.weight");
    rules->Add("layers.{l}.mla.gate", attn + "g_proj.weight");
    IgnoreCommon(rules, config, prefix, num_layers);
    rules->Ignore(prefix + "mtp.*", "multi-token prediction");
    if (num_layers == 46) rules->Ignore(prefix + "layers.46.*", "multi-token prediction");
  }
  // The rows of a head differ between the kinds of layers.
  for (int64_t l = 0; l < static_cast<int64_t>(spec->layers.size()); ++l) {
    const auto& mla = std::get<MlaSpec>(spec->layers[static_cast<size_t>(l)].mixer);
    for (const char* prefix : {"model.layers.", "model.language_model.layers."}) {
      AddMlaNames(rules, Cat(prefix, l, ".self_attn."), mla, "o_proj", Cat("layers.", l, ".mla."));
    }
  }
  for (const char* other :
       {"vision_encoder.*", "vision_tower.*", "audio_encoder.*", "audio_tower.*", "audio_adapter.*"}) {
    rules->Ignore(other, "vision or audio");
    rules->Ignore(Cat("model.", other), "vision or audio");
  }
}

}  // namespace moe
