// What config.json of JetMoE, ZAYA and Inkling means and what is refused. That the numbers are right is for the
// fixtures (tests/engine/model/fixture_test.cc).
#include <gtest/gtest.h>

#include <cmath>

#include "loaders/architectures.h"

namespace moe {
namespace {

using nlohmann::json;

StatusOr<ModelDescription> Read(const json& config) {
  return ReadModelConfig(config.dump());
}

ModelSpec SpecOf(json config, const json& change = json::object()) {
  config.update(change);
  const StatusOr<ModelDescription> model = Read(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : ModelSpec{};
}

std::string Failure(json config, const json& change) {
  config.update(change);
  return std::string(Read(config).status().message());
}

const AttentionSpec& Attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}
const MoeSpec& Moe(const ModelSpec& spec, size_t layer) {
  return std::get<MoeSpec>(spec.layers.at(layer).ffn);
}

json Tiny(const char* architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 32},
          {"hidden_size", 16},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"moe_intermediate_size", 8},
          {"num_experts", 4}};
}

TEST(JetMoeTest, HeadsAreTheChoicesTimesTheKeyHeads) {
  json config = {{"architectures", {"JetMoeForCausalLM"}}, {"num_experts_per_tok", 3}, {"num_attention_heads", 7}};
  const ModelSpec spec = SpecOf(config, {{"rms_norm_eps", 0.25}});
  EXPECT_EQ(spec.layers.size(), 12u);
  EXPECT_EQ(spec.vocab_size, 32000);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(Attention(spec, 0).num_heads, 48);
  EXPECT_EQ(Attention(spec, 0).num_kv_heads, 16);
  EXPECT_EQ(Attention(spec, 0).head_dim, 128);
  EXPECT_EQ(Attention(spec, 0).head_experts->num_experts, 8);
  // The layers' norms have an epsilon of their own.
  EXPECT_EQ(spec.final_norm.eps, 0.25f);
  EXPECT_EQ(spec.layers[0].mixer_norm.eps, 1e-6f);
  EXPECT_EQ(spec.layers[0].ffn_norm.eps, 1e-6f);
  EXPECT_TRUE(Moe(spec, 0).output_bias);
  EXPECT_EQ(Moe(SpecOf(config, {{"activation_function", "gelu"}}), 0).expert.activation, Activation::kGeluErf);
  EXPECT_NE(Failure(config, {{"activation_function", "relu"}}).find("activation_function"), std::string::npos);
  EXPECT_NE(Failure(config, {{"num_experts_per_tok", 9}}).find("num_experts_per_tok is 9"), std::string::npos);
  EXPECT_NE(Failure(config, {{"partial_rotary_factor", 0.5}}).find("partial_rotary_factor"), std::string::npos);
}

TEST(ZayaTest, LayerKindsRopesAndTails) {
  const json config = Tiny("ZayaForCausalLM");
  const ModelSpec spec = SpecOf(config, {{"layer_types", {"hybrid", "hybrid_sliding", "hybrid"}},
                                         {"sliding_window", 5},
                                         {"cca_time0", 3},
                                         {"cca_time1", 4},
                                         {"lm_head_bias", true},
                                         {"attention_bias", true}});
  EXPECT_EQ(Attention(spec, 0).window, 0);
  EXPECT_EQ(Attention(spec, 1).window, 5);
  EXPECT_EQ(Attention(spec, 0).rope->rotary_dim, 4);
  EXPECT_NEAR(Attention(spec, 0).rope->inv_freq[1], 1 / std::sqrt(5e6), 1e-9);
  EXPECT_NEAR(Attention(spec, 1).rope->inv_freq[1], 1e-2, 1e-8);
  EXPECT_TRUE(Attention(spec, 0).qkv_bias && Attention(spec, 0).output_bias);
  EXPECT_TRUE(spec.head_bias && spec.tied_head && spec.embedding_affine);
  // q and k (48 values) of two rows, then of three, and half of v.
  EXPECT_EQ(CacheOf(spec.layers[0].mixer).tail, 5 * 48 + 8);
  EXPECT_EQ(CacheOf(spec.layers[0], spec.hidden_size).tail, 5 * 48 + 8);
  EXPECT_FALSE(spec.HasRecurrentState());
  EXPECT_FALSE(Moe(spec, 0).router.mlp->carries);
  EXPECT_TRUE(Moe(spec, 1).router.mlp->carries);
  EXPECT_EQ(Moe(spec, 0).num_choices(), 5);
  EXPECT_TRUE(spec.layers[2].ffn_residual.learnt);

  // A stray rope_type beside the settings of the kinds, and one without a partial factor: all dims turn.
  const json ropes = {{"rope_type", "default"}, {"hybrid", {{"rope_theta", 100.0}}}};
  EXPECT_EQ(Attention(SpecOf(config, {{"rope_parameters", ropes}}), 0).rope->rotary_dim, 8);
  EXPECT_NE(
      Failure(config, {{"rope_parameters", {{"hybrid_sliding", {{"rope_theta", 100.0}}}}}}).find("rope_parameters"),
      std::string::npos);
}

// What ValidateSpec adds for specs that no config gives.
TEST(ZayaTest, BrokenSpecs) {
  const ModelSpec sound = SpecOf(Tiny("ZayaForCausalLM"));
  ASSERT_TRUE(ValidateSpec(sound).ok());
  const auto broken = [&](const auto& change) {
    ModelSpec spec = sound;
    change(spec.layers[1], std::get<AttentionSpec>(spec.layers[1].mixer), std::get<MoeSpec>(spec.layers[1].ffn));
    return !ValidateSpec(spec).ok();
  };
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec&, MoeSpec& moe) { moe.router.mlp->width += 1; }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec&, MoeSpec& moe) { moe.router.mlp.reset(); }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec&, MoeSpec& moe) { moe.router.sinks = 1; }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec&, MoeSpec& moe) { moe.weight_on_input = true; }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec& attn, MoeSpec&) { attn.kv_conv = 4; }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec& attn, MoeSpec&) { attn.relative_bias = RelativeBiasSpec{2, 9}; }));
  EXPECT_TRUE(broken([](LayerSpec&, AttentionSpec& attn, MoeSpec&) { attn.head_experts = HeadExpertsSpec{4, 2}; }));
  EXPECT_TRUE(broken([](LayerSpec& layer, AttentionSpec&, MoeSpec&) { layer.ffn_conv = 17; }));
  EXPECT_TRUE(broken([](LayerSpec& layer, AttentionSpec&, MoeSpec&) { layer.parallel = true; }));
}

TEST(ZayaTest, Refusals) {
  const json config = Tiny("ZayaForCausalLM");
  EXPECT_NE(Failure(config, {{"num_experts_per_tok", 2}}).find("num_experts_per_tok: is 2"), std::string::npos);
  EXPECT_NE(Failure(config, {{"layer_types", {"hybrid", "mamba", "hybrid"}}}).find("layer_types"), std::string::npos);
  EXPECT_NE(Failure(config, {{"layer_types", {"hybrid", "hybrid_sliding", "hybrid"}}}).find("sliding_window"),
            std::string::npos);
  EXPECT_NE(Failure(config, {{"cca_time0", 17}}).find("cca_time0"), std::string::npos);
  EXPECT_NE(Failure(config, {{"num_key_value_heads", 3}}).find("num_key_value_heads"), std::string::npos);
}

TEST(InklingTest, LayerKinds) {
  const json config = Tiny("InklingForCausalLM");
  const json own = {{"n_routed_experts", 4},
                    {"num_experts", nullptr},
                    {"num_hidden_layers", 7},
                    {"num_experts_per_tok", 2},
                    {"swa_head_dim", 4},
                    {"swa_num_attention_heads", 6},
                    {"swa_num_key_value_heads", 3},
                    {"d_rel", 5},
                    {"rel_extent", 40},
                    {"sliding_window", 9},
                    {"log_scaling_n_floor", 20},
                    {"log_scaling_alpha", 0.5},
                    {"embedding_multiplier", 4.0},
                    {"model_max_length", 77},
                    {"sconv_kernel_size", 3},
                    {"dense_mlp_idx", 2},
                    {"dense_intermediate_size", 48},
                    {"intermediate_size", 20},
                    {"route_scale", 3.0},
                    {"n_shared_experts", 3},
                    {"tie_word_embeddings", true}};
  const ModelSpec spec = SpecOf(config, own);
  EXPECT_EQ(spec.max_positions, 77);
  EXPECT_EQ(spec.logit_scale, 0.25f);
  EXPECT_FALSE(spec.tied_head);
  EXPECT_TRUE(spec.embedding_norm.present());
  for (size_t l = 0; l < 7; ++l) EXPECT_EQ(Attention(spec, l).window, l == 5 ? 0 : 9) << l;
  const AttentionSpec& sliding = Attention(spec, 0);
  EXPECT_EQ(sliding.num_heads, 6);
  EXPECT_EQ(sliding.relative_bias->extent, 9);
  EXPECT_EQ(sliding.query_scale.kind, PositionScale::Kind::kNone);
  const AttentionSpec& full = Attention(spec, 5);
  EXPECT_EQ(full.num_heads, 4);
  EXPECT_EQ(full.scale, 0.125f);
  EXPECT_EQ(full.relative_bias->extent, 40);
  EXPECT_EQ(PositionScaleAt(full.query_scale, 19), 1.0f);
  EXPECT_NEAR(PositionScaleAt(full.query_scale, 39), 1 + 0.5 * std::log(2.0), 1e-6);
  EXPECT_FALSE(full.rope.has_value());
  // Two rows each of k and v (2 · 2 · 8), of the attention's and of the ffn's output.
  EXPECT_EQ(CacheOf(spec.layers[5], spec.hidden_size).tail, 2 * (32 + 16 + 16));

  EXPECT_EQ(std::get<MlpSpec>(spec.layers[1].ffn).intermediate_size, 48);
  EXPECT_TRUE(spec.layers[1].ffn_scale);
  EXPECT_EQ(Moe(spec, 2).expert.intermediate_size, 20);
  EXPECT_EQ(Moe(spec, 2).router.sinks, 3);
  EXPECT_EQ(Moe(spec, 2).router.scale, 3.0f);
  EXPECT_EQ(Moe(spec, 2).shared->count, 3);
  EXPECT_EQ(Moe(spec, 2).shared->mlp.intermediate_size, 20);

  json local = own;
  local["local_layer_ids"] = {2};
  local.erase("dense_intermediate_size");
  const ModelSpec other = SpecOf(config, local);
  for (size_t l = 0; l < 7; ++l) EXPECT_EQ(Attention(other, l).window, l == 2 ? 9 : 0) << l;
  EXPECT_EQ(std::get<MlpSpec>(other.layers[0].ffn).intermediate_size, 20);
  EXPECT_EQ(Moe(other, 2).expert.intermediate_size, 8);
  local["local_layer_ids"] = json::array();
  EXPECT_EQ(Attention(SpecOf(config, local), 0).window, 0);
}

TEST(InklingTest, HeadsWithFewerRows) {
  json config = Tiny("InklingForCausalLM");
  config.update({{"n_routed_experts", 4}, {"num_experts", nullptr}, {"num_experts_per_tok", 2}});
  EXPECT_EQ(SpecOf(config, {{"unpadded_vocab_size", 30}}).head_rows, 30);
  EXPECT_EQ(SpecOf(config, {{"unpadded_vocab_size", 32}}).head_rows, 0);
  EXPECT_EQ(SpecOf(config).head_rows, 0);
  EXPECT_NE(Failure(config, {{"n_shared_experts", 0}}).find("n_shared_experts"), std::string::npos);
  EXPECT_NE(Failure(config, {{"layer_types", {"hybrid", "full_attention", "hybrid"}}}).find("layer_types"),
            std::string::npos);
}

// The multimodal file, whose text fields are an object of their own.
TEST(InklingTest, ReleasedNames) {
  json text = Tiny("InklingForCausalLM");
  text.erase("architectures");
  text.update({{"n_routed_experts", 4}, {"num_experts", nullptr}, {"num_experts_per_tok", 2}});
  const json config = {{"architectures", {"InklingForConditionalGeneration"}}, {"text_config", text}};
  const StatusOr<ModelDescription> model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto* rules = model->rules.Find("layers.{l}.moe.shared.{e}.up");
  ASSERT_NE(rules, nullptr);
  const TensorRule& rule = rules->back();
  EXPECT_EQ(rule.checkpoint, "model.llm.layers.{l}.mlp.shared_experts.shared_w13_weight");
  EXPECT_TRUE(rule.layout.interleaved);
  EXPECT_EQ(rule.layout.part, 1);
}

}  // namespace
}  // namespace moe
