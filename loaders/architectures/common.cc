#include "loaders/architectures/common.h"

#include <cmath>

namespace moe {

void ReadBasics(ConfigReader* config, ModelSpec* spec) {
  spec->vocab_size = config->Int("vocab_size", 1, limits::kMaxVocab);
  spec->hidden_size = config->Int("hidden_size", 1, limits::kMaxWidth);
  spec->max_positions = config->Int("max_position_embeddings", 1, limits::kMaxPositions);
  spec->tied_head = config->BoolOr("tie_word_embeddings", false);
  for (const int64_t id : config->IntOrList("eos_token_id", 0, limits::kMaxVocab)) {
    spec->eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  if (const auto id = config->OptionalInt("bos_token_id", 0, limits::kMaxVocab)) {
    spec->bos_token_id = static_cast<int32_t>(*id);
  }
}

int64_t ReadLayerCount(ConfigReader* config) {
  return config->Int("num_hidden_layers", 1, limits::kMaxLayers);
}

AttentionSpec ReadGroupedQueryAttention(ConfigReader* config, const ModelSpec& spec) {
  AttentionSpec attn;
  attn.num_heads = config->Int("num_attention_heads", 1, limits::kMaxHeads);
  attn.num_kv_heads = config->Int("num_key_value_heads", 1, limits::kMaxHeads);
  const FieldNames head_dim = {"head_dim", "attention_head_dim"};
  if (!config->Has(head_dim) && config->ok() && spec.hidden_size % attn.num_heads != 0) {
    config->Invalid("num_attention_heads", Cat("is ", attn.num_heads, ", which does not divide hidden_size (",
                                               spec.hidden_size, "), and head_dim is absent"));
  }
  attn.head_dim = config->IntOr(head_dim, spec.hidden_size / attn.num_heads, 1, limits::kMaxHeadDim);
  attn.v_head_dim = attn.head_dim;
  attn.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attn.head_dim)));
  return attn;
}

std::vector<bool> ReadSparseLayers(ConfigReader* config, int64_t num_layers) {
  const int64_t step = config->IntOr("decoder_sparse_step", 1, 1, limits::kMaxLayers);
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t l = 0; l < num_layers; ++l) sparse[static_cast<size_t>(l)] = (l + 1) % step == 0;
  for (const int64_t l : config->IntList("mlp_only_layers", 0, limits::kMaxLayers)) {
    if (l < num_layers) sparse[static_cast<size_t>(l)] = false;
  }
  return sparse;
}

int64_t ReadExpertCount(ConfigReader* config) {
  return config->Int({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}, 1,
                     limits::kMaxExperts);
}

int64_t ReadTopK(ConfigReader* config) {
  return config->Int({"num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"}, 1, limits::kMaxExperts);
}

void AddLlamaNames(TensorRules* rules, const std::string& prefix) {
  const std::string layer = prefix + "layers.{l}.";
  rules->Add("embed", prefix + "embed_tokens.weight");
  rules->Add("final_norm", prefix + "norm.weight");
  rules->Add("lm_head", "lm_head.weight");
  rules->Add("layers.{l}.mixer_norm", layer + "input_layernorm.weight");
  rules->Add("layers.{l}.ffn_norm", layer + "post_attention_layernorm.weight");
  for (const char* name : {"q", "k", "v", "o"}) {
    rules->AddLinear(Cat("layers.{l}.attn.", name), Cat(layer, "self_attn.", name, "_proj"));
  }
  rules->Add("layers.{l}.attn.q_norm", layer + "self_attn.q_norm.weight");
  rules->Add("layers.{l}.attn.k_norm", layer + "self_attn.k_norm.weight");
}

void AddGatedMlpNames(TensorRules* rules, const std::string& out, const std::string& in) {
  rules->AddMlp(out, in, "gate_proj", "up_proj", "down_proj");
}

void IgnoreCommon(TensorRules* rules, ConfigReader* config, const std::string& prefix, int64_t num_layers) {
  constexpr int64_t kMaxDraftLayers = 64;
  rules->Ignore("*.rotary_emb.inv_freq", "stored rotary frequencies");
  rules->IgnoreDraftLayers(prefix + "layers.", num_layers,
                           config->IntOr("num_nextn_predict_layers", 0, 0, kMaxDraftLayers));
}

}  // namespace moe
