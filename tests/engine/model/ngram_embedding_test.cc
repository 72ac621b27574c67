// The hash functions of n-gram embeddings, from config.json to table rows, against transformers'.
#include "engine/model/ngram_embedding.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "loaders/architectures/hashed_ngrams.h"

namespace moe {
namespace {

struct Read {
  Status status;
  ModelSpec spec;
};

Read ReadNgrams(const nlohmann::json& fields, int64_t vocab_size, int64_t num_layers,
                const std::vector<int64_t>& layers) {
  Read read;
  read.spec.vocab_size = vocab_size;
  read.spec.hidden_size = 32;
  read.spec.eos_token_ids = {2, 5};
  read.spec.layers.resize(static_cast<size_t>(num_layers));
  ConfigReader config(&fields, "config.json");
  ReadHashedNgrams(&config, layers, &read.spec, {.groups = 2});
  read.status = config.status();
  return read;
}

TEST(NgramEmbedding, HashesOfTheRealModel) {
  const Read read = ReadNgrams({{"ple_embed_dim", 64}}, 248320, 3, {0, 2});
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_FALSE(read.spec.layers[1].ngram);
  const NgramSpec& first = *read.spec.layers[0].ngram;
  EXPECT_EQ(first.multipliers, (std::vector<int64_t>{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(first.head_rows.size(), 16u);
  EXPECT_EQ(first.head_rows[0], 20000003);
  EXPECT_EQ(first.part_rows.size(), 512u);
  const NgramSpec& second = *read.spec.layers[2].ngram;
  EXPECT_EQ(second.multipliers, (std::vector<int64_t>{3352040966061, 19752442147475, 10742103100073}));
  EXPECT_GT(second.head_rows[0], first.head_rows[15]);
}

TEST(NgramEmbedding, RowsOfTokens) {
  const Read read = ReadNgrams({{"ngram_size", 3},
                                {"heads_per_ngram", 2},
                                {"ngram_vocab_size_base", 50},
                                {"split_ngram_parts", 7},
                                {"make_ngram_vocab_size_divisible_by", 16}},
                               128, 4, {0, 2});
  ASSERT_TRUE(read.status.ok()) << read.status;
  const NgramSpec& spec = *read.spec.layers[2].ngram;
  EXPECT_EQ(spec.head_rows, (std::vector<int64_t>{71, 73, 79, 83}));
  EXPECT_EQ(spec.part_rows, (std::vector<int64_t>{46, 46, 46, 46, 46, 46, 44}));
  EXPECT_EQ(spec.boundary, 2);
  // Nothing reaches across a 2, but the 2 itself looks back.
  const std::vector<int32_t> tokens = {5, 9, 2, 7, 7, 100, 2, 2, 127, 3, 64};
  const std::vector<int32_t> want = {47,  122, 183, 284, 31,  97,  152, 244, 26,  119, 199, 281, 14,  83, 145,
                                     233, 28,  118, 194, 275, 22,  139, 152, 237, 27,  122, 199, 245, 50, 108,
                                     178, 232, 63,  90,  173, 285, 42,  72,  149, 275, 60,  83,  159, 230};
  std::vector<int32_t> ids(want.size());
  HashNgrams(spec, tokens, 0, 11, ids.data());
  EXPECT_EQ(ids, want);
  // From the middle on, the tokens before are looked at too.
  std::fill(ids.begin(), ids.end(), 0);
  HashNgrams(spec, tokens, 0, 4, ids.data());
  HashNgrams(spec, tokens, 4, 7, ids.data() + 16);
  EXPECT_EQ(ids, want);
}

TEST(NgramEmbedding, RowsOfAveragedTables) {
  // Computed by a Python script from the formula of NgramMeanSpec.
  const NgramMeanSpec spec{
      .max_n = 4, .heads_per_n = 2, .dim = 4, .head_rows = {337, 339, 341, 343, 345, 347}, .boundary = 2};
  const std::vector<int32_t> tokens = {5, 9, 2, 7, 90, 33, 2, 2, 95, 3, 64};
  const std::vector<int32_t> want = {
      5, 5, 5,  5,  5,  5,  152, 150, 148, 146, 144, 142, 192, 188, 229, 298, 26,  101, 7,   7,   7,   7,
      7, 7, 88, 84, 80, 76, 72,  68,  248, 198, 211, 126, 45,  315, 137, 119, 229, 149, 182, 53,  2,   2,
      2, 2, 2,  2,  95, 95, 95,  95,  95,  95,  24,  309, 257, 205, 153, 101, 15,  13,  184, 193, 262, 44};
  std::vector<int32_t> ids;
  HashNgramMean(spec, 96, tokens, 0, static_cast<int64_t>(tokens.size()), &ids);
  EXPECT_EQ(ids, want);
  // From the middle on, the tokens before are looked at too.
  ids.clear();
  HashNgramMean(spec, 96, tokens, 0, 5, &ids);
  HashNgramMean(spec, 96, tokens, 5, static_cast<int64_t>(tokens.size()) - 5, &ids);
  EXPECT_EQ(ids, want);
}

TEST(NgramEmbedding, BoundsOfTheConfig) {
  EXPECT_FALSE(ReadNgrams({{"ngram_size", 1}}, 128, 1, {0}).status.ok());
  EXPECT_FALSE(ReadNgrams({{"ngram_size", 9}}, 128, 1, {0}).status.ok());
  EXPECT_FALSE(ReadNgrams({{"heads_per_ngram", 8000}}, 128, 1, {0}).status.ok());
  EXPECT_FALSE(ReadNgrams({{"split_ngram_parts", 65536}}, 128, 2, {0, 1}).status.ok());
}

}  // namespace
}  // namespace moe
