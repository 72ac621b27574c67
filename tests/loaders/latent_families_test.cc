// Families with latent attention: what their switches mean, by config.json alone. That the numbers are right is for the
// fixtures (tests/engine/model/fixture_test.cc).
#include <gtest/gtest.h>

#include <cmath>

#include "loaders/architectures.h"
#include "tests/loaders/planned_checkpoint.h"

namespace moe {
namespace {

using nlohmann::json;

json Config(const char* architecture, const json& fields) {
  json config = {{"architectures", {architecture}},
                 {"vocab_size", 32},
                 {"hidden_size", 24},
                 {"intermediate_size", 16},
                 {"moe_intermediate_size", 8},
                 {"num_attention_heads", 4},
                 {"n_routed_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"num_hidden_layers", 4},
                 {"max_position_embeddings", 64},
                 {"eos_token_id", 2},
                 {"bos_token_id", 1},
                 {"q_lora_rank", 12},
                 {"kv_lora_rank", 10},
                 {"qk_nope_head_dim", 6},
                 {"qk_rope_head_dim", 4},
                 {"v_head_dim", 5},
                 {"n_group", 2},
                 {"topk_group", 1}};
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

const MlaSpec& Mla(const ModelSpec& spec, size_t layer) {
  return std::get<MlaSpec>(spec.layers[layer].mixer);
}
const MoeSpec& Moe(const ModelSpec& spec, size_t layer) {
  return std::get<MoeSpec>(spec.layers[layer].ffn);
}
std::vector<int64_t> SparseLayers(const ModelSpec& spec) {
  return spec.MoeLayers();
}

using Layers = std::vector<int64_t>;

TEST(LatentFamiliesTest, DeepseekV3ReadsItsAttention) {
  const ModelSpec spec = Spec("DeepseekV3ForCausalLM", {{"rms_norm_eps", 1e-4}, {"first_k_dense_replace", 1}});
  const MlaSpec& mla = Mla(spec, 0);
  EXPECT_EQ(mla.q_lora, 12);
  EXPECT_EQ(mla.kv_lora, 10);
  EXPECT_FLOAT_EQ(mla.scale, 1 / std::sqrt(10.0f));
  EXPECT_FLOAT_EQ(mla.q_norm.eps, 1e-6f);
  EXPECT_FLOAT_EQ(spec.layers[0].mixer_norm.eps, 1e-4f);
  EXPECT_EQ(mla.rope->layout, RopeSpec::Layout::kInterleaved);
  EXPECT_EQ(mla.rope->rotary_dim, 4);
  EXPECT_FALSE(mla.q_a_bias || mla.kv_a_bias || mla.output_bias);
  EXPECT_EQ(SparseLayers(spec), (Layers{1, 2, 3}));
  EXPECT_EQ(Moe(spec, 1).router.num_groups, 2);
  EXPECT_FLOAT_EQ(Moe(spec, 1).router.scale, 2.5f);
}

TEST(LatentFamiliesTest, SwitchesOfDeepseekV3) {
  const ModelSpec spec = Spec("DeepseekV3ForCausalLM", {{"q_lora_rank", nullptr},
                                                        {"rope_interleave", false},
                                                        {"attention_bias", true},
                                                        {"rope_theta", 10000.0},
                                                        {"rope_scaling",
                                                         {{"type", "yarn"},
                                                          {"factor", 40},
                                                          {"original_max_position_embeddings", 16},
                                                          {"mscale", 1.0},
                                                          {"mscale_all_dim", 1.0}}}});
  const MlaSpec& mla = Mla(spec, 0);
  EXPECT_EQ(mla.q_lora, 0);
  EXPECT_FALSE(mla.q_a_bias);
  EXPECT_TRUE(mla.kv_a_bias && mla.output_bias);
  EXPECT_EQ(mla.rope->layout, RopeSpec::Layout::kHalfSplit);
  EXPECT_NEAR(mla.scale * std::sqrt(10.0), 1.87385, 1e-5);  // (0.1 ln 40 + 1)²
  EXPECT_EQ(mla.rope->cos_sin_scale, 1.0);
  EXPECT_EQ(SparseLayers(spec), (Layers{3}));
}

// Of all MLPs, those of the dense layers too.
TEST(LatentFamiliesTest, AnotherActivation) {
  for (const char* name : {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"}) {
    const ModelSpec spec = Spec(name, {{"hidden_act", "gelu"}, {"first_k_dense_replace", 1}});
    EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].ffn).activation, Activation::kGeluErf) << name;
    EXPECT_EQ(Moe(spec, 1).expert.activation, Activation::kGeluErf) << name;
    EXPECT_EQ(Moe(spec, 1).shared->mlp.activation, Activation::kGeluErf) << name;
  }
}

TEST(LatentFamiliesTest, WhatIsNotSupportedIsNamed) {
  ExpectRefused("DeepseekV3ForCausalLM", {{"hidden_act", "relu"}}, "hidden_act");
  ExpectRefused("DeepseekV3ForCausalLM", {{"scoring_func", "softmax"}}, "scoring_func");
  ExpectRefused("DeepseekV3ForCausalLM", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  ExpectRefused("DeepseekV2ForCausalLM", {{"topk_method", "noaux_tc"}}, "topk_method");
  ExpectRefused("DeepseekV2ForCausalLM", {{"norm_topk_prob", true}}, "norm_topk_prob");
  ExpectRefused("DeepseekV32ForCausalLM", {{"rope_interleave", false}}, "rope_interleave");
  ExpectRefused("DeepseekV32ForCausalLM", {{"index_head_dim", 2}}, "index_head_dim");
  ExpectRefused("GlmMoeDsaForCausalLM", {{"indexer_types", {"shared", "full", "full", "full"}}}, "indexer_types");
  ExpectRefused("GlmMoeDsaForCausalLM", {{"indexer_types", {"full", "half", "full", "full"}}}, "indexer_types");
  ExpectRefused("GlmMoeDsaForCausalLM", {{"index_topk_pattern", "FS"}}, "index_topk_pattern");
  ExpectRefused("LongcatFlashForCausalLM",
                {{"num_layers", 1}, {"expert_ffn_hidden_size", 8}, {"ffn_hidden_size", 16}, {"zero_expert_type", "x"}},
                "zero_expert_type");
}

TEST(LatentFamiliesTest, RoutersOfDeepseekV2) {
  const json groups = {{"topk_method", "group_limited_greedy"}, {"norm_topk_prob", false}, {"mlp_bias", true}};
  const ModelSpec spec = Spec("DeepseekV2ForCausalLM", groups);
  const RouterSpec& router = Moe(spec, 0).router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSoftmax);
  EXPECT_EQ(router.group_score, RouterSpec::GroupScore::kMax);
  EXPECT_EQ(router.num_groups, 2);
  EXPECT_EQ(router.normalize, RouterSpec::Normalize::kNone);
  EXPECT_FALSE(router.select_bias);
  EXPECT_TRUE(Moe(spec, 0).shared->mlp.bias);
  EXPECT_FALSE(Moe(spec, 0).expert.bias);
  EXPECT_EQ(Moe(spec, 0).shared->mlp.intermediate_size, 2 * 8);
  EXPECT_EQ(Moe(Spec("DeepseekV2ForCausalLM"), 0).router.num_groups, 1) << "greedy";
}

TEST(LatentFamiliesTest, IndexersOfDeepseekAndGlm) {
  const ModelSpec deepseek = Spec("DeepseekV32ForCausalLM", {{"index_topk", 7}, {"index_head_dim", 8}});
  EXPECT_EQ(Mla(deepseek, 0).indexer->rope->layout, RopeSpec::Layout::kHalfSplit);
  EXPECT_EQ(Mla(deepseek, 0).indexer->top_k, 7);
  EXPECT_EQ(Mla(deepseek, 0).indexer->num_heads, 64);
  const auto shared = [](const json& fields) {
    const ModelSpec spec = Spec("GlmMoeDsaForCausalLM", fields);
    Layers with;
    for (size_t l = 0; l < spec.layers.size(); ++l) with.push_back(Mla(spec, l).indexer->share_with_layer);
    return with;
  };
  EXPECT_EQ(shared(json::object()), (Layers{-1, -1, -1, -1}));
  EXPECT_EQ(shared({{"indexer_types", {"full", "shared", "full", "shared"}}}), (Layers{-1, 0, -1, 2}));
  EXPECT_EQ(shared({{"index_topk_pattern", "FSSF"}}), (Layers{-1, 0, 0, -1}));
  EXPECT_EQ(shared({{"index_topk_freq", 2}}), (Layers{-1, -1, 1, -1}));
  EXPECT_EQ(Mla(Spec("GlmMoeDsaForCausalLM"), 0).indexer->rope->layout, RopeSpec::Layout::kInterleaved);
}

TEST(LatentFamiliesTest, DenseLayersByTypeOrCount) {
  const json types = {{"mlp_layer_types", {"sparse", "dense", "sparse", "dense"}}};
  for (const char* name : {"DeepseekV32ForCausalLM", "Glm4MoeLiteForCausalLM", "AXK1ForCausalLM", "AXK2ForCausalLM"}) {
    EXPECT_EQ(SparseLayers(Spec(name, types)), (Layers{0, 2})) << name;
  }
  EXPECT_EQ(SparseLayers(Spec("DeepseekV32ForCausalLM")), (Layers{3}));
  EXPECT_EQ(SparseLayers(Spec("Glm4MoeLiteForCausalLM")), (Layers{1, 2, 3}));
  EXPECT_EQ(SparseLayers(Spec("AXK1ForCausalLM", {{"moe_layer_freq", 2}})), (Layers{2}));
  EXPECT_EQ(SparseLayers(Spec("Mistral4ForCausalLM")), (Layers{0, 1, 2, 3}));
}

TEST(LatentFamiliesTest, Mistral4ScalesItsQueries) {
  const json rope = {{"rope_type", "yarn"},
                     {"rope_theta", 1e4},
                     {"factor", 4},
                     {"original_max_position_embeddings", 16},
                     {"llama_4_scaling_beta", 0.25}};
  const ModelSpec spec = Spec("Mistral4ForCausalLM", {{"rope_parameters", rope}});
  const PositionScale& scale = Mla(spec, 0).query_scale;
  EXPECT_EQ(PositionScaleAt(scale, 15), 1.0f);
  EXPECT_FLOAT_EQ(PositionScaleAt(scale, 16), 1 + 0.25f * std::log(2.0f));
  EXPECT_EQ(Mla(spec, 0).rope->rotary_dim, 4);
  EXPECT_EQ(Mla(Spec("Mistral4ForCausalLM"), 0).query_scale.period, 8192) << "of the assumed rotation";
}

TEST(LatentFamiliesTest, LongcatLayersAreTwoOfOurs) {
  const ModelSpec spec = Spec("LongcatFlashForCausalLM", {{"n_group", 1},
                                                          {"num_layers", 2},
                                                          {"moe_topk", 2},
                                                          {"expert_ffn_hidden_size", 8},
                                                          {"ffn_hidden_size", 16},
                                                          {"zero_expert_num", 3}});
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_EQ(SparseLayers(spec), (Layers{0, 2}));
  EXPECT_TRUE(spec.layers[0].defer_ffn);
  EXPECT_EQ(spec.layers[0].beside->mlp.intermediate_size, 16);
  EXPECT_FALSE(spec.layers[1].defer_ffn);
  EXPECT_EQ(Moe(spec, 0).num_choices(), 11);
  EXPECT_FLOAT_EQ(Mla(spec, 1).q_scale, std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(Mla(spec, 1).kv_scale, std::sqrt(2.4f));
}

TEST(LatentFamiliesTest, AxK2GatesItsNorms) {
  const ModelSpec spec = Spec("AXK2ForCausalLM", {{"gated_norm_rank", 3}});
  EXPECT_EQ(spec.layers[0].mixer_norm_gate, 3);
  EXPECT_EQ(spec.layers[0].ffn_norm_gate, 0) << "dense";
  EXPECT_EQ(spec.layers[1].ffn_norm_gate, 3);
  EXPECT_TRUE(Mla(spec, 0).q_reads_raw_latent);
}

// A file with every tensor that the family reads but for those whose name has `without` in it.
Status OpenWithout(const char* architecture, const std::string& without, ModelSpec* spec) {
  const StatusOr<ModelDescription> model = ReadModelConfig(Config(architecture, json::object()).dump());
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<testing::TinyTensor> tensors = testing::PlannedTensors(*model);
  std::erase_if(tensors, [&](const auto& tensor) { return tensor.name.find(without) != std::string::npos; });
  return testing::OpenTensors(*model, tensors, spec);
}

TEST(LatentFamiliesTest, AxK1NeedsNoSelectionBias) {
  ModelSpec spec;
  EXPECT_TRUE(OpenWithout("AXK1ForCausalLM", "(nothing)", &spec).ok());
  EXPECT_TRUE(Moe(spec, 1).router.select_bias);
  const Status status = OpenWithout("AXK1ForCausalLM", "e_score_correction_bias", &spec);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(Moe(spec, 1).router.select_bias);
  EXPECT_FALSE(OpenWithout("DeepseekV3ForCausalLM", "e_score_correction_bias", &spec).ok());
}

}  // namespace
}  // namespace moe
