// What config.json and the tensor names mean in families that transformers does not have, and in multimodal files
// around a language model.
#include <gtest/gtest.h>

#include <cmath>

#include "loaders/architectures.h"

namespace moe {
namespace {

using nlohmann::json;

ModelDescription Read(const json& config) {
  StatusOr<ModelDescription> model = ReadModelConfig(config.dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : ModelDescription{};
}

void ExpectRefused(json config, const json& change, const std::string& kind, const std::string& text) {
  config.update(change);
  const Status status = ReadModelConfig(config.dump()).status();
  EXPECT_EQ(ErrorKind(status), kind) << change.dump() << ": " << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
}

json Tiny(const char* architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 16},           {"hidden_size", 8},
          {"num_hidden_layers", 4},          {"num_attention_heads", 2},   {"num_key_value_heads", 1},
          {"intermediate_size", 12},         {"moe_intermediate_size", 6}, {"max_position_embeddings", 64},
          {"num_experts_per_tok", 2},        {"num_local_experts", 3}};
}

const AttentionSpec& Attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}

// The rules for a canonical name, first choice first.
std::vector<std::string> Names(const TensorRules& rules, const std::string& canonical) {
  std::vector<std::string> names;
  if (const auto* found = rules.Find(canonical)) {
    for (const TensorRule& rule : *found) names.push_back(rule.checkpoint);
  }
  return names;
}

bool Ignores(const TensorRules& rules, const std::string& name) {
  for (const IgnoreRule& rule : rules.ignored()) {
    if (MatchesGlob(rule.pattern, name)) return true;
  }
  return false;
}

json TinyGrok2() {
  json config = Tiny("Grok1ForCausalLM");
  config.update({{"head_dim", 4},
                 {"residual_moe", true},
                 {"embedding_multiplier_scale", 4.0},
                 {"output_multiplier_scale", 0.5},
                 {"final_logit_softcapping", 50},
                 {"attn_temperature_len", 1024},
                 {"sliding_window_size", -1},
                 {"rope_type", "original"},
                 {"scaling_factor", 16.0}});
  return config;
}

TEST(UnreleasedFamiliesTest, Grok2) {
  const ModelSpec spec = Read(TinyGrok2()).spec;
  EXPECT_EQ(spec.embedding_scale, 4);
  EXPECT_EQ(spec.logit_scale, 0.5f);
  EXPECT_EQ(spec.logit_cap, 50);
  const AttentionSpec& attn = Attention(spec, 0);
  EXPECT_EQ(attn.logit_cap, 30);
  EXPECT_TRUE(attn.query_scale_after_cap);
  EXPECT_EQ(PositionScaleAt(attn.query_scale, 1024), 1);
  EXPECT_FLOAT_EQ(PositionScaleAt(attn.query_scale, 1 << 20), 2);
  const LayerSpec& layer = spec.layers[0];
  EXPECT_EQ(layer.beside->mlp.intermediate_size, 12);
  EXPECT_EQ(layer.ffn_post_norm.eps, 2 * layer.mixer_post_norm.eps);
  const MoeSpec& moe = std::get<MoeSpec>(layer.ffn);
  EXPECT_EQ(moe.expert.intermediate_size, 6);
  EXPECT_EQ(moe.router.logit_cap, 30);
  EXPECT_EQ(moe.router.normalize, RouterSpec::Normalize::kNone);
  ExpectRefused(TinyGrok2(), {{"rope_type", "yarn_log"}}, "UNSUPPORTED", "rope_type");
  ExpectRefused(TinyGrok2(), {{"sliding_window_size", 4}}, "UNSUPPORTED", "sliding_window_size");
  ExpectRefused(TinyGrok2(), {{"attn_temperature_len", 1}}, "INVALID", "attn_temperature_len");
  ExpectRefused(TinyGrok2(), {{"embedding_multiplier_scale", nullptr}}, "INVALID", "embedding_multiplier_scale");
}

TEST(UnreleasedFamiliesTest, Grok1) {
  json config = Tiny("Grok1ModelForCausalLM");
  config.update(
      {{"embedding_multiplier_scale", 4.0}, {"output_multiplier_scale", 0.5}, {"attn_output_multiplier", 0.25}});
  const ModelDescription model = Read(config);
  EXPECT_TRUE(model.spec.tied_head);
  EXPECT_EQ(Attention(model.spec, 0).scale, 0.25f);
  EXPECT_EQ(std::get<MoeSpec>(model.spec.layers[0].ffn).router.logit_cap, 0);
  EXPECT_FALSE(model.spec.layers[0].beside);
  EXPECT_EQ(Names(model.rules, "layers.{l}.moe.experts.{e}.up")[0],
            "model.layers.{l}.moe_block.experts.{e}.linear_v.weight");
}

TEST(UnreleasedFamiliesTest, Arctic) {
  json config = Tiny("ArcticForCausalLM");
  config.update({{"parallel_attn_mlp_res", true}, {"use_residual", true}});
  const ModelSpec spec = Read(config).spec;
  EXPECT_EQ(spec.MoeLayers(), (std::vector<int64_t>{1, 3}));
  EXPECT_FALSE(spec.layers[0].parallel);
  EXPECT_TRUE(spec.layers[1].parallel);
  EXPECT_TRUE(spec.layers[1].beside->after_mixer);
  EXPECT_EQ(spec.layers[1].beside->mlp.intermediate_size, 8);
  ExpectRefused(config, {{"use_residual", false}}, "INVALID", "use_residual");
  config.erase("use_residual");
  config["parallel_attn_mlp_res"] = false;
  EXPECT_FALSE(Read(config).spec.layers[1].beside);
}

TEST(UnreleasedFamiliesTest, Step3) {
  json config = Tiny("Step3TextForCausalLM");
  config.erase("num_key_value_heads");
  config.erase("max_position_embeddings");
  config.update({{"num_attention_groups", 1},
                 {"max_position_embedding", 64},
                 {"head_dim", 4},
                 {"share_q_dim", 6},
                 {"moe_num_experts", 3},
                 {"moe_top_k", 2},
                 {"share_expert_dim", 5},
                 {"moe_layers_enum", "1,3"}});
  const ModelDescription model = Read(config);
  EXPECT_EQ(model.spec.max_positions, 64);
  EXPECT_EQ(model.spec.MoeLayers(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(Attention(model.spec, 0).q_lora, 6);
  EXPECT_EQ(Attention(model.spec, 0).num_kv_heads, 1);
  EXPECT_EQ(Names(model.rules, "layers.{l}.attn.q")[0], "model.layers.{l}.self_attn.wq.weight");
  ExpectRefused(config, {{"num_attention_groups", 2}}, "UNSUPPORTED", "num_attention_groups");
  ExpectRefused(config, {{"moe_layers_enum", "1;3"}}, "INVALID", "moe_layers_enum");
}

TEST(UnreleasedFamiliesTest, MimoQkvCutUpForTensorParallelism) {
  json config = Tiny("MiMoV2ForCausalLM");
  config.update({{"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 4},
                 {"v_head_dim", 3},
                 {"partial_rotary_factor", 0.5},
                 {"hybrid_layer_pattern", {0, 1, 1, 0}},
                 {"n_routed_experts", 3}});
  config.erase("num_local_experts");
  const ModelDescription model = Read(config);
  // Two shards, each of 2 heads of q, 1 of k and 1 of v; 2 of k and v in the layers with a window.
  const auto* full = model.rules.Find("layers.0.attn.k");
  ASSERT_NE(full, nullptr);
  EXPECT_EQ((*full)[1].checkpoint, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ((*full)[1].layout.group_begin, 8);
  EXPECT_EQ((*full)[1].layout.group_rows, 4);
  EXPECT_EQ((*full)[1].layout.group_total, 8 + 4 + 3);
  const auto* sliding = model.rules.Find("layers.1.attn.v");
  ASSERT_NE(sliding, nullptr);
  EXPECT_EQ((*sliding)[1].layout.group_begin, 8 + 8);
  EXPECT_EQ((*sliding)[1].layout.group_rows, 6);
}

TEST(UnreleasedFamiliesTest, LongcatNgrams) {
  json config = Tiny("LongcatFlashNgramForCausalLM");
  config.update({{"num_layers", 2},
                 {"hidden_size", 12},
                 {"n_routed_experts", 3},
                 {"moe_topk", 2},
                 {"qk_rope_head_dim", 4},
                 {"eos_token_id", 2},
                 {"emb_neighbor_num", 4},
                 {"emb_split_num", 2},
                 {"ngram_vocab_size_ratio", 3.5}});
  for (const char* other : {"num_local_experts", "num_experts_per_tok"}) config.erase(other);
  const ModelSpec spec = Read(config).spec;
  ASSERT_TRUE(spec.ngram_mean.has_value());
  EXPECT_EQ(spec.ngram_mean->head_rows, (std::vector<int64_t>{57, 59, 61, 63, 65, 67}));
  EXPECT_EQ(spec.ngram_mean->dim, 2);
  EXPECT_EQ(spec.ngram_mean->boundary, 2);
  ExpectRefused(config, {{"emb_split_num", 5}}, "INVALID", "hidden_size");
  ExpectRefused(config, {{"emb_neighbor_num", nullptr}}, "INVALID", "emb_neighbor_num");
  ExpectRefused(config, {{"ngram_vocab_size_ratio", 1e9}}, "INVALID", "ngram_vocab_size_ratio");
}

TEST(UnreleasedFamiliesTest, LanguageModelsOfMultimodalFiles) {
  json text = Tiny("Qwen3MoeForCausalLM");
  text.erase("architectures");
  text["model_type"] = "qwen3_moe";
  const json config = {{"architectures", {"InternVLForConditionalGeneration"}}, {"text_config", text}};
  const ModelDescription model = Read(config);
  EXPECT_EQ(model.spec.family, "qwen3_moe");
  EXPECT_EQ(Names(model.rules, "final_norm"),
            (std::vector<std::string>{"model.norm.weight", "language_model.model.norm.weight",
                                      "model.language_model.norm.weight"}));
  EXPECT_TRUE(Ignores(model.rules, "vision_tower.embeddings.cls_token"));
  EXPECT_FALSE(Ignores(model.rules, "language_model.model.layers.0.self_attn.q_proj.bias"));
  for (const char* type : {"llama", "internvl"}) {
    json other = config;
    other["text_config"]["model_type"] = type;
    ExpectRefused(other, json::object(), "UNSUPPORTED", "model_type: is");
  }
  ExpectRefused({{"architectures", {"LlavaForConditionalGeneration"}}}, json::object(), "INVALID", "model_type");
}

TEST(UnreleasedFamiliesTest, Qwen3OmniThinker) {
  json text = Tiny("");
  text.erase("architectures");
  const ModelDescription model = Read({{"architectures", {"Qwen3OmniMoeForConditionalGeneration"}},
                                       {"thinker_config", {{"text_config", text}}},
                                       {"talker_config", {{"hidden_size", 5}}}});
  EXPECT_EQ(model.spec.hidden_size, 8);
  EXPECT_EQ(std::get<MoeSpec>(model.spec.layers[0].ffn).router.normalize, RouterSpec::Normalize::kSum);
  EXPECT_NEAR(Attention(model.spec, 0).rope->inv_freq.back(), std::pow(1e6, -0.5), 1e-9);
  EXPECT_EQ(Names(model.rules, "lm_head"), (std::vector<std::string>{"lm_head.weight", "thinker.lm_head.weight"}));
  EXPECT_TRUE(Ignores(model.rules, "talker.model.norm.weight"));
  EXPECT_TRUE(Ignores(model.rules, "thinker.audio_tower.conv_out.weight"));
}

}  // namespace
}  // namespace moe
