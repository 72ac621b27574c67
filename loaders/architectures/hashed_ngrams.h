// Qwen4-Exp's per-layer embeddings of hashed n-grams: their hash functions follow from a seed, their tables come in
// many parts.
#ifndef MOE_LOADERS_ARCHITECTURES_HASHED_NGRAMS_H_
#define MOE_LOADERS_ARCHITECTURES_HASHED_NGRAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// Sets NgramSpec of `layers` (ascending): ple_embed_dim, ple_conv_kernel_size, ngram_size, heads_per_ngram,
// ngram_vocab_size_base, make_ngram_vocab_size_divisible_by, seed, split_ngram_parts and the first eos_token_id.
void ReadHashedNgrams(ConfigReader* config, const std::vector<int64_t>& layers, ModelSpec* spec, const NormSpec& norm);

// Under PREFIX ("model."), for the layers that ReadHashedNgrams has set.
void AddHashedNgramNames(TensorRules* rules, const std::string& prefix, const ModelSpec& spec,
                         const std::vector<int64_t>& layers);

}  // namespace moe

#endif  // MOE_LOADERS_ARCHITECTURES_HASHED_NGRAMS_H_
