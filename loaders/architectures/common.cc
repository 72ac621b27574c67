#include "loaders/architectures/common.h"

#include <cmath>

namespace moe {

void ReadBasics(ConfigReader* config, ModelSpec* spec, bool tied_by_default) {
  spec->vocab_size = config->Int("vocab_size", 1, limits::kMaxVocab);
  spec->hidden_size = config->Int("hidden_size", 1, limits::kMaxWidth);
  spec->max_positions = config->Int("max_position_embeddings", 1, limits::kMaxPositions);
  // In multimodal files either level may say it; a head that is stored anyway and differs is used (weight_store.h).
  spec->tied_head =
      config->BoolOr("tie_word_embeddings", tied_by_default) || config->Outer().BoolOr("tie_word_embeddings", false);
  ReadSpecialTokens(config, spec);
}

void ReadSpecialTokens(ConfigReader* config, ModelSpec* spec) {
  for (const int64_t id : config->IntOrList("eos_token_id", 0, limits::kMaxVocab)) {
    spec->eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  if (const auto id = config->OptionalInt("bos_token_id", 0, limits::kMaxVocab)) {
    spec->bos_token_id = static_cast<int32_t>(*id);
  }
}

int64_t ReadLayerCount(ConfigReader* config) {
  config->ExpectAbsent("per_layer_config");
  return config->Int("num_hidden_layers", 1, limits::kMaxLayers);
}

Activation ReadGatedActivation(ConfigReader* config, const char* field) {
  config->ExpectString(field, {"silu", "swish", "gelu", "gelu_pytorch_tanh"});
  const std::string name = config->StringOr(field, "silu");
  if (name == "gelu") return Activation::kGeluErf;
  return name == "gelu_pytorch_tanh" ? Activation::kGeluTanh : Activation::kSilu;
}

NormSpec ReadRmsNorm(ConfigReader* config, double default_eps) {
  return {NormKind::kRms, static_cast<float>(config->FloatOr("rms_norm_eps", default_eps, 0, 1)), false};
}

AttentionSpec ReadGroupedQueryAttention(ConfigReader* config, const ModelSpec& spec, int64_t default_head_dim) {
  AttentionSpec attn;
  attn.num_heads = config->Int("num_attention_heads", 1, limits::kMaxHeads);
  attn.num_kv_heads = config->IntOr("num_key_value_heads", attn.num_heads, 1, limits::kMaxHeads);
  const FieldNames head_dim = {"head_dim", "attention_head_dim"};
  if (default_head_dim == 0 && !config->Has(head_dim) && config->ok() && spec.hidden_size % attn.num_heads != 0) {
    config->Invalid("num_attention_heads", Cat("is ", attn.num_heads, ", which does not divide hidden_size (",
                                               spec.hidden_size, "), and head_dim is absent"));
  }
  if (default_head_dim == 0) default_head_dim = spec.hidden_size / attn.num_heads;
  attn.head_dim = config->IntOr(head_dim, default_head_dim, 1, limits::kMaxHeadDim);
  attn.v_head_dim = attn.head_dim;
  attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  return attn;
}

}  // namespace moe
