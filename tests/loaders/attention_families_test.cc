// What config.json of the families with unusual attention means, in the spellings of released files and of
// transformers.
#include <gtest/gtest.h>

#include <cmath>

#include "loaders/architectures.h"

namespace moe {
namespace {

using nlohmann::json;

StatusOr<ModelDescription> Read(const json& config) {
  return ReadModelConfig(config.dump());
}

ModelSpec SpecOf(const json& config) {
  const StatusOr<ModelDescription> model = Read(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : ModelSpec{};
}

const AttentionSpec& Attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}

void ExpectRefused(json config, const json& change, const std::string& kind, const std::string& text) {
  config.update(change);
  const Status status = Read(config).status();
  EXPECT_EQ(ErrorKind(status), kind) << change.dump() << ": " << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
}

json Tiny(const char* architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 16},           {"hidden_size", 8},
          {"num_hidden_layers", 4},          {"num_attention_heads", 2},   {"num_key_value_heads", 1},
          {"intermediate_size", 12},         {"moe_intermediate_size", 6}, {"max_position_embeddings", 64},
          {"num_experts_per_tok", 2}};
}

TEST(AttentionFamiliesTest, AbsentFieldsHaveTransformersDefaults) {
  const ModelSpec spec = SpecOf({{"architectures", {"GptOssForCausalLM"}}, {"rope_scaling", nullptr}});
  EXPECT_EQ(spec.layers.size(), 36u);
  EXPECT_EQ(spec.hidden_size, 2880);
  const AttentionSpec& attn = Attention(spec, 0);
  EXPECT_EQ(attn.window, 128);
  EXPECT_EQ(Attention(spec, 1).window, 0);
  EXPECT_TRUE(attn.sinks);
  EXPECT_NEAR(attn.rope->cos_sin_scale, 0.1 * std::log(32.0) + 1, 1e-12);
  EXPECT_LT(attn.rope->inv_freq.back(), std::pow(150000.0, -62.0 / 64) / 31);  // stretched by 32
  const MoeSpec& moe = std::get<MoeSpec>(spec.layers[0].ffn);
  EXPECT_EQ(moe.num_experts, 128);
  EXPECT_FLOAT_EQ(moe.expert.limit, 7.0f);
}

TEST(AttentionFamiliesTest, Llama4LayerKinds) {
  json config = Tiny("Llama4ForCausalLM");
  config.update({{"head_dim", 4},
                 {"num_local_experts", 3},
                 {"attention_chunk_size", 5},
                 {"no_rope_layers", json::array()},
                 {"moe_layers", {1}},
                 {"attn_temperature_tuning", 4}});
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(Attention(spec, 0).chunk, 5);
  EXPECT_TRUE(Attention(spec, 0).rope.has_value());
  EXPECT_EQ(Attention(spec, 0).qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(Attention(spec, 3).chunk, 0);
  EXPECT_FALSE(Attention(spec, 3).rope.has_value());
  EXPECT_EQ(Attention(spec, 3).query_scale.kind, PositionScale::Kind::kLog);
  EXPECT_EQ(spec.MoeLayers(), std::vector<int64_t>{1});
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].ffn).intermediate_size, 16384);
  config["moe_layers"] = json::array();
  EXPECT_TRUE(SpecOf(config).MoeLayers().empty());
  config["attn_temperature_tuning"] = false;
  EXPECT_EQ(Attention(SpecOf(config), 3).query_scale.kind, PositionScale::Kind::kNone);
  ExpectRefused(config, {{"no_rope_layers", {1, 1}}}, "INVALID", "no_rope_layers");
  ExpectRefused(config, {{"partial_rotary_factor", 0.5}}, "UNSUPPORTED", "partial_rotary_factor");
}

json TinyGemma() {
  json config = Tiny("Gemma4ForCausalLM");
  config.update({{"head_dim", 4},
                 {"hidden_size_per_layer_input", 0},
                 {"global_head_dim", 8},
                 {"num_key_value_heads", 2},
                 {"num_global_key_value_heads", 1},
                 {"attention_k_eq_v", true},
                 {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
                 {"enable_moe_block", true},
                 {"num_experts", 3},
                 {"top_k_experts", 2}});
  return config;
}

TEST(AttentionFamiliesTest, Gemma4FullLayersInBothSpellings) {
  json config = TinyGemma();
  const ModelSpec released = SpecOf(config);
  config.erase("global_head_dim");
  config.erase("num_global_key_value_heads");
  config["per_layer_config"] = {{"1", {{"head_dim", 8}, {"num_key_value_heads", 1}}},
                                {"3", {{"head_dim", 8}, {"num_key_value_heads", 1}}}};
  const ModelSpec saved = SpecOf(config);
  for (const ModelSpec* spec : {&released, &saved}) {
    EXPECT_EQ(Attention(*spec, 0).head_dim, 4);
    EXPECT_EQ(Attention(*spec, 0).num_kv_heads, 2);
    EXPECT_EQ(Attention(*spec, 1).head_dim, 8);
    EXPECT_EQ(Attention(*spec, 1).num_kv_heads, 1);
    EXPECT_EQ(Attention(*spec, 1).rope->inv_freq, (std::vector<double>{1, 0, 0, 0}));  // a quarter of 4 pairs
    EXPECT_TRUE(spec->tied_head);
    EXPECT_TRUE(spec->layers[0].beside.has_value());
  }
  config["per_layer_config"]["1"]["intermediate_size"] = 5;
  ExpectRefused(config, json::object(), "UNSUPPORTED", "per_layer_config.1.intermediate_size");
}

TEST(AttentionFamiliesTest, Gemma4SharedKeys) {
  json config = TinyGemma();
  config.update({{"num_kv_shared_layers", 2}, {"use_double_wide_mlp", true}});
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(Attention(spec, 1).share_kv_with_layer, -1);
  EXPECT_EQ(Attention(spec, 2).share_kv_with_layer, 0);
  EXPECT_EQ(Attention(spec, 3).share_kv_with_layer, 1);
  EXPECT_EQ(spec.layers[1].beside->mlp.intermediate_size, 12);
  EXPECT_EQ(spec.layers[3].beside->mlp.intermediate_size, 24);
  ExpectRefused(config, {{"num_kv_shared_layers", 3}}, "INVALID", "num_kv_shared_layers");
}

TEST(AttentionFamiliesTest, Gemma4LayerInputs) {
  json config = TinyGemma();
  config.update({{"hidden_size_per_layer_input", 4}, {"vocab_size_per_layer_input", 16}, {"rms_norm_eps", 0.5}});
  const ModelSpec spec = SpecOf(config);
  ASSERT_TRUE(spec.layer_input.has_value());
  EXPECT_EQ(spec.layer_input->dim, 4);
  EXPECT_EQ(spec.layer_input->table_scale, 2);
  EXPECT_EQ(spec.layer_input->projection_norm.eps, 0.5f * 8);
  EXPECT_EQ(spec.layer_input->norm.eps, 0.5f);
  ExpectRefused(config, {{"vocab_size_per_layer_input", 15}}, "UNSUPPORTED", "vocab_size_per_layer_input: is 15");
  ExpectRefused(config, {{"hidden_size_per_layer_input", -1}}, "INVALID", "hidden_size_per_layer_input");
  EXPECT_FALSE(SpecOf(TinyGemma()).layer_input.has_value());
}

TEST(AttentionFamiliesTest, Gemma4KeysThatAreValues) {
  const StatusOr<ModelDescription> model = Read(TinyGemma());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto* own = model->rules.Find("layers.1.attn.v");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->front().checkpoint, "model.language_model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(model->rules.Find("layers.0.attn.v"), nullptr);  // the pattern's rule: v_proj
}

TEST(AttentionFamiliesTest, MimoInBothSpellings) {
  json config = Tiny("MiMoV2FlashForCausalLM");
  config.update({{"head_dim", 12},
                 {"v_head_dim", 8},
                 {"n_routed_experts", 4},
                 {"sliding_window", 9},
                 {"layer_types", {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}},
                 {"mlp_layer_types", {"dense", "sparse", "dense", "sparse"}}});
  const ModelSpec saved = SpecOf(config);
  config["architectures"] = {"MiMoV2ForCausalLM"};
  config.erase("layer_types");
  config.erase("mlp_layer_types");
  config.update({{"hybrid_layer_pattern", {0, 1, 0, 1}},
                 {"moe_layer_freq", {0, 1, 0, 1}},
                 {"rope_theta", 5000000},
                 {"swa_rope_theta", 10000},
                 {"partial_rotary_factor", 0.334},
                 {"swa_num_key_value_heads", 2},
                 {"sliding_window_size", 8},
                 {"routed_scaling_factor", nullptr}});
  const ModelSpec released = SpecOf(config);
  for (size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(Attention(saved, l).rope->inv_freq, Attention(released, l).rope->inv_freq);
    EXPECT_EQ(Attention(saved, l).window, Attention(released, l).window);
    EXPECT_EQ(Attention(saved, l).num_kv_heads, Attention(released, l).num_kv_heads);
    EXPECT_EQ(Attention(saved, l).sinks, l % 2 == 1);
  }
  EXPECT_EQ(Attention(saved, 1).window, 9);
  EXPECT_EQ(Attention(saved, 1).num_kv_heads, 2);
  EXPECT_EQ(saved.MoeLayers(), released.MoeLayers());
}

TEST(AttentionFamiliesTest, StepListsMayGoOnWithDraftLayers) {
  json config = Tiny("Step3p5ForCausalLM");
  for (const char* name : {"num_key_value_heads", "num_experts_per_tok"}) config.erase(name);
  config.update({{"head_dim", 4},
                 {"num_attention_groups", 1},
                 {"moe_num_experts", 4},
                 {"moe_top_k", 2},
                 {"share_expert_dim", 10},
                 {"num_nextn_predict_layers", 1},
                 {"sliding_window", 5},
                 {"layer_types",
                  {"full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
                 {"moe_layers_enum", "1, 3,4"},
                 {"swiglu_limits", {nullptr, 0.5, 0, 7, 0}},
                 {"swiglu_limits_shared", {0.25, 0, 0, 0, 0}},
                 {"rope_theta", {100.0, 10000.0, 100.0, 10000.0, 100.0}},
                 {"partial_rotary_factors", {0.5, 1.0, 0.5, 1.0, 0.5}},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                 {"attention_other_setting", {{"num_attention_heads", 4}}}});
  const ModelSpec spec = SpecOf(config);
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_EQ(spec.MoeLayers(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(Attention(spec, 0).rope->inv_freq, (std::vector<double>{0.5}));  // scaled, half the head
  EXPECT_EQ(Attention(spec, 1).rope->inv_freq.size(), 2u);
  EXPECT_EQ(Attention(spec, 1).rope->inv_freq[0], 1.0);  // not scaled
  EXPECT_EQ(Attention(spec, 0).num_heads, 2);
  EXPECT_EQ(Attention(spec, 1).num_heads, 4);
  EXPECT_EQ(Attention(spec, 1).num_kv_heads, 1);
  const MlpSpec& dense = std::get<MlpSpec>(spec.layers[0].ffn);
  EXPECT_EQ(dense.activation, Activation::kSwigluStep);
  EXPECT_FLOAT_EQ(dense.limit, 0.25f);
  EXPECT_FLOAT_EQ(std::get<MoeSpec>(spec.layers[1].ffn).expert.limit, 0.5f);
  EXPECT_EQ(std::get<MoeSpec>(spec.layers[1].ffn).shared->mlp.activation, Activation::kSilu);
  ExpectRefused(config, {{"moe_layers_enum", "1;3"}}, "INVALID", "moe_layers_enum");
  ExpectRefused(config, {{"swiglu_limits", {1, 2}}}, "INVALID", "swiglu_limits");
}

TEST(AttentionFamiliesTest, LagunaGates) {
  json config = Tiny("LagunaForCausalLM");
  config.update({{"head_dim", 4}, {"num_experts", 4}, {"num_attention_heads_per_layer", {2, 3, 4, 1}}});
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(Attention(spec, 0).gate, AttentionGate::kHeadSoftplus);
  EXPECT_EQ(Attention(spec, 2).num_heads, 4);
  EXPECT_EQ(Attention(spec, 0).rope->rotary_dim, 2);
  config["gating"] = "per-element";
  EXPECT_EQ(Attention(SpecOf(config), 0).gate, AttentionGate::kElementSoftplus);
  ExpectRefused(config, {{"gating", "per-row"}}, "UNSUPPORTED", "gating");
  ExpectRefused(config, {{"moe_apply_router_weight_on_input", true}}, "UNSUPPORTED", "weight_on_input");
}

TEST(AttentionFamiliesTest, PhiHasFactorsForShortAndForLongContexts) {
  json config = Tiny("PhiMoEForCausalLM");
  config["num_local_experts"] = 4;
  const json scaling = {{"type", "longrope"},   {"short_factor", {1.0, 2.0}}, {"long_factor", {3.0, 4.0}},
                        {"short_mscale", 1.25}, {"long_mscale", 1.5},         {"original_max_position_embeddings", 32}};
  config["rope_scaling"] = scaling;
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(spec.max_positions, config["max_position_embeddings"].get<int64_t>());
  EXPECT_EQ(spec.LongContextBorder(), 32);
  EXPECT_EQ(Attention(spec, 0).rope->cos_sin_scale, 1.25);
  EXPECT_EQ(Attention(spec, 0).rope->long_cos_sin_scale, 1.5);
  json incomplete = scaling;
  incomplete.erase("short_mscale");
  ExpectRefused(config, {{"rope_scaling", incomplete}}, "INVALID", "short_mscale");
  ExpectRefused(config, {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "UNSUPPORTED", "linear");
  ExpectRefused(config, {{"num_experts_per_tok", 3}}, "INVALID", "num_experts_per_tok");
}

TEST(AttentionFamiliesTest, GraniteHybridMayHaveNoExperts) {
  json config = Tiny("GraniteMoeHybridForCausalLM");
  config.update({{"num_local_experts", 0},
                 {"shared_intermediate_size", 10},
                 {"mamba_n_heads", 4},
                 {"mamba_d_head", "auto"},
                 {"layer_types", {"mamba", "attention", "mamba", "mamba"}},
                 {"position_embedding_type", "nope"}});
  const ModelSpec spec = SpecOf(config);
  EXPECT_EQ(std::get<Mamba2Spec>(spec.layers[0].mixer).head_dim, 4);
  EXPECT_FALSE(Attention(spec, 1).rope.has_value());
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].ffn).intermediate_size, 10);
  config["position_embedding_type"] = "rope";
  EXPECT_TRUE(Attention(SpecOf(config), 1).rope.has_value());
  ExpectRefused(config, {{"mamba_d_head", 3}}, "INVALID", "mamba_n_heads");
}

TEST(AttentionFamiliesTest, LayersThatMayNotDiffer) {
  json config = Tiny("GraniteMoeForCausalLM");
  ExpectRefused(config, {{"per_layer_config", {{"1", {{"num_attention_heads", 4}}}}}}, "UNSUPPORTED",
                "per_layer_config");
}

}  // namespace
}  // namespace moe
