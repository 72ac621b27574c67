// Pieces that many families' config files and tensor names share.
#ifndef MOE_LOADERS_ARCHITECTURES_COMMON_H_
#define MOE_LOADERS_ARCHITECTURES_COMMON_H_

#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// vocab_size, hidden_size, max_position_embeddings, tie_word_embeddings (default: not tied) and the special token ids.
void ReadBasics(ConfigReader* config, ModelSpec* spec);

// num_hidden_layers, in range.
int64_t ReadLayerCount(ConfigReader* config);

// num_attention_heads, num_key_value_heads, head_dim (default: hidden_size / heads), scale head_dim^-1/2.
AttentionSpec ReadGroupedQueryAttention(ConfigReader* config, const ModelSpec& spec);

// Qwen's way to say which layers have experts and which an ordinary MLP: decoder_sparse_step and mlp_only_layers.
std::vector<bool> ReadSparseLayers(ConfigReader* config, int64_t num_layers);

// The number of routed experts under any of its spellings, and how many a token gets.
int64_t ReadExpertCount(ConfigReader* config);
int64_t ReadTopK(ConfigReader* config);

// Names of Llama's descendants: PREFIX embed_tokens, norm, layers.{l}.{input,post_attention}_layernorm and
// layers.{l}.self_attn.*; lm_head without the prefix. PREFIX is "model." for most.
void AddLlamaNames(TensorRules* rules, const std::string& prefix = "model.");

// gate_proj, up_proj and down_proj under IN, to OUT.
void AddGatedMlpNames(TensorRules* rules, const std::string& out, const std::string& in);

// Rotary frequencies that old checkpoints store, and the draft layers the config declares.
void IgnoreCommon(TensorRules* rules, ConfigReader* config, const std::string& prefix, int64_t num_layers);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_COMMON_H_
