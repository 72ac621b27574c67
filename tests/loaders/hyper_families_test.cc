// Families with hyper-connections: what their switches mean, by config.json alone. That the numbers are right is for
// the fixtures (tests/engine/model/fixture_test.cc).
#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "tests/loaders/planned_checkpoint.h"

namespace moe {
namespace {

using nlohmann::json;

constexpr const char* kDeepseek = "DeepseekV4ForCausalLM";
constexpr const char* kHunyuan = "HYV4ForCausalLM";

json Config(const char* architecture, const json& fields) {
  json config = {{"architectures", {architecture}},
                 {"vocab_size", 6},
                 {"hidden_size", 8},
                 {"moe_intermediate_size", 4},
                 {"intermediate_size", 4},
                 {"num_attention_heads", 4},
                 {"n_routed_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"num_hidden_layers", 4},
                 {"max_position_embeddings", 512},
                 {"q_lora_rank", 6},
                 {"eos_token_id", 2},
                 {"bos_token_id", 1}};
  if (architecture == std::string(kDeepseek)) {
    config.update({{"head_dim", 16}, {"o_groups", 2}, {"o_lora_rank", 3}, {"index_head_dim", 8}, {"index_n_heads", 3}});
  } else {
    config.update({{"kv_lora_rank", 6},
                   {"qk_nope_head_dim", 4},
                   {"qk_rope_head_dim", 2},
                   {"v_head_dim", 4},
                   {"index_head_dim", 4},
                   {"index_n_heads", 2}});
  }
  config.update(fields);
  return config;
}

ModelSpec Spec(const char* architecture, const json& fields = json::object()) {
  const StatusOr<ModelDescription> model = ReadModelConfig(Config(architecture, fields).dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : ModelSpec();
}

void ExpectRefused(const char* architecture, const json& fields, const std::string& word) {
  const StatusOr<ModelDescription> model = ReadModelConfig(Config(architecture, fields).dump());
  EXPECT_NE(std::string(model.status().message()).find(word), std::string::npos) << model.status();
}

const CompressedAttentionSpec& Attention(const ModelSpec& spec, size_t layer) {
  return std::get<CompressedAttentionSpec>(spec.layers[layer].mixer);
}
int64_t Rate(const ModelSpec& spec, size_t layer) {
  const CompressedAttentionSpec& attention = Attention(spec, layer);
  return attention.compressor ? attention.compressor->rate : 0;
}

TEST(HyperFamiliesTest, DeepseekV4sDefaults) {
  const ModelSpec spec = Spec(kDeepseek);
  EXPECT_EQ(spec.hyper->streams, 4);
  EXPECT_EQ(spec.hyper->sinkhorn, 20);
  EXPECT_EQ(spec.hyper->mixes(), 24);
  EXPECT_FALSE(spec.tied_head);
  std::vector<int64_t> rates;
  std::vector<bool> by_token;
  for (size_t l = 0; l < 4; ++l) {
    rates.push_back(Rate(spec, l));
    by_token.push_back(std::get<MoeSpec>(spec.layers[l].ffn).router.by_token);
    EXPECT_EQ(Attention(spec, l).indexer.has_value(), l == 3);
    EXPECT_EQ(Attention(spec, l).series(), l == 3 ? 2 : 1);
    EXPECT_EQ(Attention(spec, l).rope.rotary_dim, 2);  // 64 of 512 dims
  }
  EXPECT_EQ(rates, (std::vector<int64_t>{128, 128, 128, 4}));
  EXPECT_EQ(by_token, (std::vector<bool>{true, true, true, false}));
  const RouterSpec& router = std::get<MoeSpec>(spec.layers[3].ffn).router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSqrtSoftplus);
  EXPECT_TRUE(router.select_bias);
  EXPECT_FLOAT_EQ(router.scale, 1.5f);
  EXPECT_FLOAT_EQ(std::get<MoeSpec>(spec.layers[3].ffn).shared->mlp.limit, 10.0f);
}

TEST(HyperFamiliesTest, DeepseekV4sOlderSpellings) {
  const ModelSpec spec =
      Spec(kDeepseek, {{"compress_ratios", {0, 4, 128, 4, 0}},
                       {"compress_rate_csa", 6},
                       {"num_hash_layers", 1},
                       {"qk_rope_head_dim", 8},
                       {"rope_theta", 100.0},
                       {"compress_rope_theta", 900.0},
                       {"rope_scaling", {{"type", "yarn"}, {"factor", 16}, {"original_max_position_embeddings", 32}}}});
  EXPECT_EQ(Rate(spec, 0), 0);
  EXPECT_EQ(Rate(spec, 1), 6);
  EXPECT_EQ(Rate(spec, 2), 128);
  EXPECT_FALSE(std::get<MoeSpec>(spec.layers[1].ffn).router.by_token);
  EXPECT_NEAR(Attention(spec, 0).rope.inv_freq[1], std::pow(100.0, -0.25), 1e-6);
  EXPECT_EQ(Attention(spec, 1).rope.rotary_dim, 8);
  EXPECT_NEAR(Attention(spec, 1).rope.inv_freq[3], std::pow(900.0, -0.75) / 16, 1e-6);
  EXPECT_EQ(Attention(spec, 1).rope.cos_sin_scale, 1.0);
}

TEST(HyperFamiliesTest, DeepseekV4sRotationsByKind) {
  const json rope = {{"main", {{"rope_type", "default"}, {"rope_theta", 50.0}, {"partial_rotary_factor", 0.5}}},
                     {"compress",
                      {{"rope_type", "yarn"},
                       {"rope_theta", 70.0},
                       {"partial_rotary_factor", 0.25},
                       {"factor", 8.0},
                       {"original_max_position_embeddings", 64}}}};
  const ModelSpec spec = Spec(
      kDeepseek,
      {{"rope_parameters", rope},
       {"layer_types",
        {"sliding_attention", "heavily_compressed_attention", "sliding_attention", "compressed_sparse_attention"}}});
  EXPECT_EQ(Attention(spec, 0).rope.rotary_dim, 8);
  EXPECT_EQ(Attention(spec, 1).rope.rotary_dim, 4);
  EXPECT_NEAR(Attention(spec, 1).rope.cos_sin_scale, 0.1 * std::log(8.0) + 1, 1e-9);
}

TEST(HyperFamiliesTest, WhatDeepseekV4DoesNotSupportIsNamed) {
  ExpectRefused(kDeepseek, {{"scoring_func", "softmax"}}, "scoring_func");
  ExpectRefused(kDeepseek, {{"hidden_act", "gelu"}}, "hidden_act");
  ExpectRefused(kDeepseek, {{"num_key_value_heads", 2}}, "num_key_value_heads");
  ExpectRefused(kDeepseek, {{"layer_types", {"full_attention", "x", "x", "x"}}}, "layer_types");
  ExpectRefused(kDeepseek, {{"layer_types", {"sliding_attention"}}}, "layer_types");
  ExpectRefused(kDeepseek, {{"compress_ratios", {0, 4, 128, 5}}}, "compress_ratios");
  ExpectRefused(kDeepseek, {{"mlp_layer_types", {"moe", "moe", "moe", "dense"}}}, "mlp_layer_types");
  ExpectRefused(kDeepseek, {{"compress_rates", {{"compressed_sparse_attention", 4}}}}, "heavily_compressed_attention");
  ExpectRefused(kDeepseek, {{"o_groups", 3}}, "o_groups");
  ExpectRefused(kDeepseek, {{"hc_mult", 17}}, "hc_mult");
  ExpectRefused(kDeepseek, {{"index_head_dim", 2}, {"partial_rotary_factor", 0.5}}, "indexer");
}

TEST(HyperFamiliesTest, HyV4) {
  const ModelSpec spec = Spec(kHunyuan, {{"hc_magnitude", 1.5}, {"swiglu_limit", 7.0}, {"n_shared_experts", 2}});
  EXPECT_EQ(spec.hyper->kind, HyperSpec::Kind::kIndependent);
  EXPECT_EQ(spec.hyper->mixes(), 8);
  EXPECT_FLOAT_EQ(spec.hyper->post_scale, 1.5f);
  std::vector<int64_t> sources;
  for (const LayerSpec& layer : spec.layers) {
    const auto& mla = std::get<MlaSpec>(layer.mixer);
    sources.push_back(mla.indexer->share_with_layer);
    EXPECT_TRUE(mla.sinks);
    EXPECT_EQ(mla.gate, AttentionGate::kElementSigmoid);
    EXPECT_EQ(mla.rope->layout, RopeSpec::Layout::kHalfSplit);
    EXPECT_TRUE(mla.indexer->rope_last);
  }
  EXPECT_EQ(sources, (std::vector<int64_t>{-1, -1, 1, 1}));
  EXPECT_EQ(spec.MoeLayers(), (std::vector<int64_t>{1, 2, 3}));
  const auto& moe = std::get<MoeSpec>(spec.layers[1].ffn);
  EXPECT_FLOAT_EQ(moe.expert.limit, 7.0f);
  EXPECT_FLOAT_EQ(moe.shared->mlp.limit, 0.0f);
  EXPECT_EQ(moe.shared->mlp.intermediate_size, 8);
  ExpectRefused(kHunyuan, {{"indexer_types", {"shared", "full", "full", "full"}}}, "indexer_types");
  ExpectRefused(kHunyuan, {{"indexer_types", {"full", "half", "full", "full"}}}, "indexer_types");
  ExpectRefused(kHunyuan, {{"layer_types", {"full_attention", "x", "x", "x"}}}, "layer_types");
}

// Experts by token id: a table of whole numbers, each the number of an expert.
TEST(HyperFamiliesTest, TableOfExperts) {
  const json config = Config(kDeepseek, {{"num_hidden_layers", 1}});
  const StatusOr<ModelDescription> model = ReadModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto open = [&](const std::string& dtype, int64_t last) {
    std::vector<moe::testing::TinyTensor> tensors = moe::testing::PlannedTensors(*model);
    for (moe::testing::TinyTensor& tensor : tensors) {
      if (tensor.dtype != "I64") continue;
      const size_t count = tensor.data.size() / 8;
      tensor.dtype = dtype;
      tensor.data.clear();
      for (size_t i = 0; i < count; ++i) {
        const int64_t value = i + 1 == count ? last : static_cast<int64_t>(i % 4);
        tensor.data.append(reinterpret_cast<const char*>(&value), dtype == "I64" ? 8 : 4);
      }
    }
    ModelSpec spec;
    return moe::testing::OpenTensors(*model, tensors, &spec);
  };
  EXPECT_TRUE(open("I64", 3).ok()) << open("I64", 3);
  EXPECT_TRUE(open("I32", 3).ok()) << open("I32", 3);
  for (const int64_t wrong : {-1, 4}) {
    EXPECT_NE(std::string(open("I64", wrong).message()).find(Cat("holds ", wrong)), std::string::npos);
  }
  EXPECT_EQ(ErrorKind(open("F32", 0)), "UNSUPPORTED");
}

}  // namespace
}  // namespace moe
