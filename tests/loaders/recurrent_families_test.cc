// Families with recurrent layers: what their switches mean, by config.json alone. That the numbers are right is for the
// fixtures (tests/engine/model/fixture_test.cc).
#include <gtest/gtest.h>

#include <cmath>

#include "loaders/architectures.h"

namespace moe {
namespace {

using nlohmann::json;

json Basics(const char* architecture, json fields) {
  json config = {{"architectures", {architecture}},
                 {"vocab_size", 32},
                 {"hidden_size", 24},
                 {"intermediate_size", 16},
                 {"moe_intermediate_size", 8},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"num_hidden_layers", 4},
                 {"max_position_embeddings", 64}};
  config.update(fields);
  return config;
}

StatusOr<ModelDescription> Read(const json& config) {
  return ReadModelConfig(config.dump());
}

ModelSpec Spec(const json& config) {
  const StatusOr<ModelDescription> model = Read(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : ModelSpec();
}

std::string Failure(const json& config) {
  const StatusOr<ModelDescription> model = Read(config);
  return std::string(model.status().message());
}

template <typename Mixer>
std::vector<bool> LayersWith(const ModelSpec& spec) {
  std::vector<bool> with;
  for (const LayerSpec& layer : spec.layers) with.push_back(std::holds_alternative<Mixer>(layer.mixer));
  return with;
}
std::vector<bool> SparseLayers(const ModelSpec& spec) {
  std::vector<bool> sparse;
  for (const LayerSpec& layer : spec.layers) sparse.push_back(std::holds_alternative<MoeSpec>(layer.ffn));
  return sparse;
}
template <typename Mixer>
const Mixer& MixerOf(const ModelSpec& spec, size_t layer) {
  return std::get<Mixer>(spec.layers[layer].mixer);
}

const json kDelta = {{"linear_num_key_heads", 2},
                     {"linear_num_value_heads", 6},
                     {"linear_key_head_dim", 4},
                     {"linear_value_head_dim", 5},
                     {"head_dim", 8},
                     {"shared_expert_intermediate_size", 8}};

json Qwen3Next(const json& fields) {
  json config = Basics("Qwen3NextForCausalLM", kDelta);
  config.update(fields);
  return config;
}

TEST(RecurrentFamiliesTest, Qwen3Next) {
  const ModelSpec spec = Spec(Qwen3Next({{"attention_bias", true}, {"mlp_only_layers", {1}}}));
  EXPECT_EQ(LayersWith<AttentionSpec>(spec), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(SparseLayers(spec), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(spec.final_norm.kind, NormKind::kRmsOffset);
  const auto& delta = MixerOf<GatedDeltaSpec>(spec, 0);
  EXPECT_EQ(delta.conv_dim(), 2 * 8 + 30);
  EXPECT_EQ(delta.norm.kind, NormKind::kRms);
  EXPECT_EQ(CacheOf(spec.layers[0].mixer).state, 46 * 3 + 6 * 4 * 5);
  const auto& attention = MixerOf<AttentionSpec>(spec, 3);
  EXPECT_EQ(attention.gate, AttentionGate::kElementSigmoid);
  EXPECT_TRUE(attention.gate_bias);
  EXPECT_EQ(attention.rope->rotary_dim, 2);
  EXPECT_TRUE(std::get<MoeSpec>(spec.layers[0].ffn).shared->sigmoid_gated);

  EXPECT_EQ(LayersWith<AttentionSpec>(Spec(Qwen3Next({{"full_attention_interval", 2}}))),
            (std::vector<bool>{false, true, false, true}));
  EXPECT_NE(Failure(Qwen3Next({{"layer_types", {"full_attention"}}})).find("layer_types"), std::string::npos);
  EXPECT_NE(Failure(Qwen3Next({{"linear_num_value_heads", 3}})).find("linear_num_value_heads"), std::string::npos);
  EXPECT_NE(Failure(Qwen3Next({{"hidden_act", "gelu"}})).find("gelu"), std::string::npos);
}

// The gate lies in q_proj, head by head; the delta net's projections lie key head by key head.
TEST(RecurrentFamiliesTest, Qwen3NextRowsByHead) {
  const auto model = Read(Qwen3Next(json::object()));
  ASSERT_TRUE(model.ok());
  const auto rule = [&](const char* name) { return model->rules.Find(name)->front(); };
  EXPECT_EQ(rule("layers.{l}.attn.q").layout.group_total, 16);
  EXPECT_EQ(rule("layers.{l}.attn.gate").layout.group_begin, 8);
  EXPECT_EQ(rule("layers.{l}.attn.gate").checkpoint, "model.layers.{l}.self_attn.q_proj.weight");
  EXPECT_EQ(rule("layers.{l}.delta.v").layout.group_begin, 8);
  EXPECT_EQ(rule("layers.{l}.delta.z").layout.group_begin, 8 + 15);
  EXPECT_EQ(rule("layers.{l}.delta.z").layout.group_total, 8 + 30);
  EXPECT_EQ(rule("layers.{l}.delta.a").layout.group_begin, 3);
}

TEST(RecurrentFamiliesTest, LaraMiniRotatesInSlidingLayersOnly) {
  json config = Basics("LaraMiniForCausalLM", kDelta);
  config.update({{"num_hidden_layers", 5}, {"sliding_window", 9}});
  const ModelSpec spec = Spec(config);
  EXPECT_EQ(LayersWith<GatedDeltaSpec>(spec), (std::vector<bool>{true, false, true, false, false}));
  EXPECT_EQ(MixerOf<AttentionSpec>(spec, 1).window, 9);
  EXPECT_TRUE(MixerOf<AttentionSpec>(spec, 1).rope.has_value());
  EXPECT_EQ(MixerOf<AttentionSpec>(spec, 3).window, 0);
  EXPECT_FALSE(MixerOf<AttentionSpec>(spec, 3).rope.has_value());
  EXPECT_TRUE(spec.tied_head);
  EXPECT_FALSE(std::get<MoeSpec>(spec.layers[0].ffn).shared->sigmoid_gated);
}

const json kMla = {{"kv_lora_rank", 6}, {"qk_nope_head_dim", 4}, {"qk_rope_head_dim", 2}, {"v_head_dim", 4}};

TEST(RecurrentFamiliesTest, KimiLinearCountsLayersFromOne) {
  json config = Basics("KimiLinearForCausalLM", kMla);
  config.erase("max_position_embeddings");
  config["model_max_length"] = 77;
  config["linear_attn_config"] = {
      {"full_attn_layers", {2}}, {"kda_layers", {1, 3, 4}}, {"head_dim", 5}, {"num_heads", 3}};
  const ModelSpec spec = Spec(config);
  EXPECT_EQ(spec.max_positions, 77);
  EXPECT_EQ(LayersWith<MlaSpec>(spec), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(SparseLayers(spec), (std::vector<bool>{false, true, true, true}));
  EXPECT_FALSE(MixerOf<MlaSpec>(spec, 1).rope.has_value());
  const auto& delta = MixerOf<GatedDeltaSpec>(spec, 0);
  EXPECT_EQ(delta.decay, GatedDeltaSpec::Decay::kChannel);
  EXPECT_EQ(delta.decay_rank, 5);
  EXPECT_EQ(delta.k_dim(), 15);
  config["linear_attn_config"]["kda_layers"] = {1, 3};
  EXPECT_NE(Failure(config).find("kda_layers: layer 4"), std::string::npos) << Failure(config);
  config["linear_attn_config"]["kda_layers"] = {1, 3, 5};
  EXPECT_NE(Failure(config).find("kda_layers"), std::string::npos);
}

TEST(RecurrentFamiliesTest, BailingHybrid) {
  json config = Basics("BailingMoeV3ForCausalLM", kMla);
  config.update({{"layer_group_size", 2}, {"head_dim", 5}, {"n_group", 2}, {"topk_group", 1}, {"rope_theta", 100}});
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 400}};
  config["partial_rotary_factor"] = 0.5;  // of another rotation than that of the rope dims
  config["qk_rope_head_dim"] = 4;
  ModelSpec spec = Spec(config);
  EXPECT_EQ(LayersWith<MlaSpec>(spec), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(SparseLayers(spec), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(MixerOf<MlaSpec>(spec, 1).gate, AttentionGate::kHeadSigmoid);
  EXPECT_EQ(MixerOf<MlaSpec>(spec, 1).rope->rotary_dim, 4);
  EXPECT_NEAR(MixerOf<MlaSpec>(spec, 1).rope->inv_freq[1], 1.0 / 20, 1e-6);
  EXPECT_EQ(MixerOf<GatedDeltaSpec>(spec, 0).decay, GatedDeltaSpec::Decay::kSafeChannel);
  EXPECT_EQ(MixerOf<GatedDeltaSpec>(spec, 0).k_dim(), 20);
  config.update({{"linear_head_dim", 3}, {"linear_num_heads", 2}, {"kda_safe_gate", false}});
  spec = Spec(config);
  EXPECT_EQ(MixerOf<GatedDeltaSpec>(spec, 0).decay, GatedDeltaSpec::Decay::kChannel);
  EXPECT_EQ(MixerOf<GatedDeltaSpec>(spec, 0).k_dim(), 6);
}

// Ling 3.0: clamped activations in some layers, of routed and shared experts by themselves.
TEST(RecurrentFamiliesTest, BailingHybridSwigluLimits) {
  json config = Basics("BailingMoeV3ForCausalLM", kMla);
  config.update({{"n_group", 2}, {"topk_group", 1}, {"qk_rope_head_dim", 4}});
  config["expert_swiglu_limit_list"] = {0, 0, 0, 4};
  config["share_expert_swiglu_limit_list"] = {0, 0, 5, 7.5};
  const ModelSpec spec = Spec(config);
  const auto& second = std::get<MoeSpec>(spec.layers[2].ffn);
  const auto& last = std::get<MoeSpec>(spec.layers[3].ffn);
  EXPECT_EQ(second.expert.limit, 0);
  EXPECT_EQ(second.shared->mlp.limit, 5);
  EXPECT_EQ(last.expert.limit, 4);
  EXPECT_EQ(last.shared->mlp.limit, 7.5f);
  config["expert_swiglu_limit_list"] = {0, 4};
  EXPECT_NE(Failure(config).find("expert_swiglu_limit_list"), std::string::npos);
  config["expert_swiglu_limit_list"] = {0, 0, 0, -1};
  EXPECT_NE(Failure(config).find("expert_swiglu_limit_list"), std::string::npos);
}

TEST(RecurrentFamiliesTest, BailingMoeV25) {
  json config = Basics("BailingMoeV2_5ForCausalLM", kMla);
  config.update({{"layer_group_size", 3}, {"n_group", 2}, {"topk_group", 1}, {"head_dim", 8}, {"group_norm_size", 2}});
  const ModelSpec spec = Spec(config);
  // The last layer of a group, and those behind the last group.
  EXPECT_EQ(LayersWith<MlaSpec>(spec), (std::vector<bool>{false, false, true, true}));
  const auto& lightning = MixerOf<LightningSpec>(spec, 1);
  EXPECT_EQ(lightning.norm.groups, 2);
  EXPECT_EQ(lightning.rope->rotary_dim, 4);
  EXPECT_NEAR(lightning.slopes[0], 0.25 * (1 - 1.0 / 3 + 1e-5), 1e-12);
  config["use_qkv_bias"] = true;
  EXPECT_NE(Failure(config).find("use_qkv_bias"), std::string::npos);
}

TEST(RecurrentFamiliesTest, MiniMax) {
  json config = Basics("MiniMaxForCausalLM", {{"linear_attn_alpha_factor", 2}, {"mlp_beta_factor", 3}});
  const ModelSpec spec = Spec(config);
  EXPECT_EQ(LayersWith<LightningSpec>(spec), (std::vector<bool>{false, true, false, true}));
  EXPECT_TRUE(spec.layers[1].mixer_residual.skip_normed);
  EXPECT_EQ(spec.layers[1].mixer_residual.skip, 2);
  EXPECT_EQ(spec.layers[0].mixer_residual.skip, 1);
  EXPECT_EQ(spec.layers[0].ffn_residual.branch, 3);
  EXPECT_NEAR(MixerOf<LightningSpec>(spec, 3).slopes[3], std::exp2(-8) * 1e-5, 1e-7);

  config = Basics("MiniMaxText01ForCausalLM",
                  {{"attn_type_list", {0, 0, 1, 0}}, {"num_attention_heads", 6}, {"head_dim", 8}, {"rotary_dim", 4}});
  config["layernorm_full_attention_alpha"] = 5;
  const ModelSpec original = Spec(config);
  EXPECT_EQ(LayersWith<LightningSpec>(original), (std::vector<bool>{true, true, false, true}));
  EXPECT_FALSE(original.layers[2].mixer_residual.skip_normed);
  EXPECT_EQ(original.layers[2].mixer_residual.skip, 5);
  EXPECT_EQ(MixerOf<AttentionSpec>(original, 2).rope->rotary_dim, 4);
  // Four heads as of four, two more as of eight.
  const auto& slopes = MixerOf<LightningSpec>(original, 0).slopes;
  const double expected[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (size_t h = 0; h < 6; ++h) EXPECT_NEAR(slopes[h], expected[h] * (1 + 1e-5), 1e-12);
  config["attn_type_list"] = {0, 1};
  EXPECT_NE(Failure(config).find("attn_type_list"), std::string::npos);
  config.erase("attn_type_list");
  config["shared_intermediate_size"] = 4;
  EXPECT_NE(Failure(config).find("shared_intermediate_size"), std::string::npos);
}

TEST(RecurrentFamiliesTest, Jamba) {
  json config = Basics("JambaForCausalLM", {{"attn_layer_period", 3}, {"attn_layer_offset", 1}});
  ModelSpec spec = Spec(config);
  EXPECT_EQ(LayersWith<AttentionSpec>(spec), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(SparseLayers(spec), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(MixerOf<Mamba1Spec>(spec, 0).inner, 48);
  EXPECT_EQ(MixerOf<Mamba1Spec>(spec, 0).dt_rank, 2);  // hidden_size / 16, rounded up
  EXPECT_EQ(std::get<MoeSpec>(spec.layers[1].ffn).router.normalize, RouterSpec::Normalize::kNone);
  config["mamba_dt_rank"] = "auto";
  EXPECT_EQ(MixerOf<Mamba1Spec>(Spec(config), 0).dt_rank, 2);
  config["mamba_dt_rank"] = 7;
  EXPECT_EQ(MixerOf<Mamba1Spec>(Spec(config), 0).dt_rank, 7);
  config["mamba_dt_rank"] = "half";
  EXPECT_NE(Failure(config).find("mamba_dt_rank"), std::string::npos);
  config.erase("mamba_dt_rank");
  config["attn_layer_offset"] = 3;
  EXPECT_NE(Failure(config).find("attn_layer_offset"), std::string::npos);
}

TEST(RecurrentFamiliesTest, Lfm2Moe) {
  json config = Basics("Lfm2MoeForCausalLM", {{"layer_types", {"conv", "full_attention", "conv", "conv"}}});
  config.update({{"num_dense_layers", 1}, {"use_expert_bias", false}, {"conv_bias", true}, {"conv_L_cache", 5}});
  const ModelSpec spec = Spec(config);
  EXPECT_EQ(LayersWith<ShortConvSpec>(spec), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(SparseLayers(spec), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(CacheOf(spec.layers[0].mixer).state, 24 * 4);
  EXPECT_FALSE(std::get<MoeSpec>(spec.layers[1].ffn).router.select_bias);
  EXPECT_TRUE(spec.tied_head);
  config["tie_embedding"] = false;
  EXPECT_FALSE(Spec(config).tied_head);
  config.erase("layer_types");
  EXPECT_NE(Failure(config).find("layer_types"), std::string::npos);
}

}  // namespace
}  // namespace moe
