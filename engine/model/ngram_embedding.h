// NgramEmbedding: adds a layer's hashed n-gram embeddings to the residual streams (formulas: NgramSpec). And those that
// are averaged with the word embeddings (NgramMeanSpec).
#ifndef MOE_ENGINE_MODEL_NGRAM_EMBEDDING_H_
#define MOE_ENGINE_MODEL_NGRAM_EMBEDDING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/ops.h"
#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

class NgramEmbedding {
 public:
  NgramEmbedding(const NgramSpec* spec, const PackedNgram* weights) : spec_(spec), weights_(weights) {}
  // x [rows, streams * hidden] += the embeddings. ids [rows, heads()]: HashNgrams. The slices carry the convolution's
  // window, `state_offset` floats behind the start of their states; it moves on.
  void Forward(const ForwardContext& context, std::span<const int32_t> ids, std::span<const MixerSlice> slices,
               int64_t state_offset, int64_t rows, int64_t hidden, float* x) const;

 private:
  const NgramSpec* spec_;
  const PackedNgram* weights_;
};

// The table rows of the n-grams that end with each of the positions [first_pos, first_pos + count) of `tokens`:
// ids [count, heads()].
void HashNgrams(const NgramSpec& spec, std::span<const int32_t> tokens, int64_t first_pos, int64_t count, int32_t* ids);

// NgramMeanSpec's: appends heads() rows of the tables for each position.
void HashNgramMean(const NgramMeanSpec& spec, int64_t vocab_size, std::span<const int32_t> tokens, int64_t first_pos,
                   int64_t count, std::vector<int32_t>* ids);
// x [rows, hidden], the word embeddings, becomes the mean. ids [rows, heads()].
void AverageNgrams(const ForwardContext& context, const NgramMeanSpec& spec, const PackedNgramMean& weights,
                   std::span<const int32_t> ids, int64_t rows, int64_t hidden, float* x);

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_NGRAM_EMBEDDING_H_
