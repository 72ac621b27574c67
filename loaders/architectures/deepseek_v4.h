// The parts of DeepSeek-V4's reader.
#ifndef MOE_LOADERS_ARCHITECTURES_DEEPSEEK_V4_H_
#define MOE_LOADERS_ARCHITECTURES_DEEPSEEK_V4_H_

#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// Kinds of layers: attention over a window alone, with compressed history that an indexer chooses from, with more
// compressed history.
inline constexpr const char* kV4Window = "sliding_attention";
inline constexpr const char* kV4Sparse = "compressed_sparse_attention";
inline constexpr const char* kV4Heavy = "heavily_compressed_attention";

// layer_types, or compress_ratios with a number for each kind; else two heavily compressed layers, then by turns.
std::vector<std::string> ReadDeepseekV4Types(ConfigReader* config, int64_t num_layers);

// Whether each layer's experts are given by the token id: mlp_layer_types, or the first num_hash_layers.
std::vector<bool> ReadDeepseekV4HashLayers(ConfigReader* config, int64_t num_layers);

// Of each layer.
std::vector<CompressedAttentionSpec> ReadDeepseekV4Attention(ConfigReader* config, const ModelSpec& spec,
                                                             const NormSpec& norm, int64_t num_layers);

// DeepSeek's own names, those that transformers gives the tensors in memory, and what it saves: its prefix with
// DeepSeek's names.
void AddDeepseekV4Names(TensorRules* rules, int64_t num_experts);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_DEEPSEEK_V4_H_
