// No field of config.json that says what a model computes is passed over: in every family's fixture each field, and
// each of those that many families have, gets other values in turn. At least one of them must make another spec, or be
// refused; where none does, a list here says why that is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "loaders/architectures.h"
#include "loaders/json_text.h"
#include "tests/loaders/family_fixtures.h"

namespace moe {
namespace {

using nlohmann::json;

const std::string kRoot = std::string(MOE_TEST_DATA_DIR) + "/families/";  // of which the exceptions are

struct Exception {
  const char* why;
  std::vector<const char*> fields;
  std::vector<const char*> families = {};  // empty: all
};

bool Excepted(const std::vector<Exception>& exceptions, const std::string& family, const std::string& field) {
  return std::any_of(exceptions.begin(), exceptions.end(), [&](const Exception& one) {
    const auto is = [](const std::string& name) { return [&name](const char* other) { return name == other; }; };
    return std::any_of(one.fields.begin(), one.fields.end(), is(field)) &&
           (one.families.empty() || std::any_of(one.families.begin(), one.families.end(), is(family)));
  });
}

const std::vector<Exception> kFixtureExceptions = {
    {"says who wrote the file, and how it stores numbers",
     {"model_type", "transformers_version", "torch_dtype", "dtype"}},
    {"only the first name counts", {"architectures"}},
    {"only batches with padding have it", {"pad_token_id"}},
    {"tokens of a kind, not what the model does with them", {"eod_token_id", "sep_token_id"}},
    {"training alone",
     {"attention_dropout",
      "embedding_dropout",
      "output_dropout",
      "hidden_dropout",
      "emb_pdrop",
      "resid_pdrop",
      "initializer_range",
      "router_aux_loss_coef",
      "aux_loss_coef",
      "router_jitter_noise",
      "input_jitter_noise",
      "seq_aux",
      "learnable_sink_init",
      "rescale_prenorm_residual",
      "moe_token_dropping",
      "moe_min_capacity",
      "moe_train_capacity_factor",
      "moe_eval_capacity_factor",
      "time_step_min",
      "time_step_max",
      "time_step_floor"}},
    {"how another implementation computes or splits the same",
     {"use_cache", "output_router_logits", "pretraining_tp", "ep_size", "enable_expert_tensor_parallelism",
      "number_of_conv_states", "use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep",
      "chunk_size", "mamba_chunk_size", "block_size", "moe_shared_expert_overlap", "attention_chunk_size"}},
    {"routers and residuals are float32 here in any case",
     {"router_dtype", "residual_in_fp32", "mamba_ssm_cache_dtype", "enable_moe_fp32_combine"}},
    {"drafts are not served",
     {"num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types", "mtp_layers_block_type", "use_mtp",
      "mtp_loss_scaling_factor", "mtp_local_layer_ids", "mtp_hidden_states_first", "chain_hidden_post_norm"}},
    {"follows from others, or other fields say it, and the stored shapes or other names decide",
     {"qk_head_dim", "q_head_dim", "expand", "max_sequence_length", "max_window_layers",
      "moe_shared_expert_intermediate_size", "attention_projection_layout"}},
    {"latent attention has neither groups nor one head size",
     {"num_key_value_heads", "head_dim"},
     {"axk1", "axk2", "bailing_hybrid", "bailing_moe_v2_5", "deepseek_v2", "deepseek_v3", "deepseek_v32",
      "dots3_note_text", "glm4_moe_lite", "glm_moe_dsa", "hy_v4", "kimi_linear", "longcat_flash", "mistral4",
      "sarvam_mla"}},
    {"mlp_layer_types says it", {"first_k_dense_replace"}, {"bailing_hybrid", "exaone_moe", "glm4_moe_lite"}},
    {"no layer of the fixture is dense",
     {"intermediate_size"},
     {"mellum", "mistral4", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_vl_moe"}},
    {"no layer of the fixture slides", {"sliding_window"}, {"dots3_note_text", "mellum"}},
    {"use_sliding_window says no", {"sliding_window"}, {"qwen2_moe", "qwen3_moe"}},
    {"there is no sliding_window", {"use_sliding_window"}, {"qwen2_moe", "qwen3_moe"}},
    {"layer_types says it", {"sliding_window_pattern"}, {"exaone_moe"}},
    {"layer_types says it", {"local_layer_ids"}, {"inkling_text"}},
    {"there is no log_scaling_n_floor", {"log_scaling_alpha"}, {"inkling_text"}},
    {"no norm has it", {"rms_norm_eps_moe_gate"}, {"inkling_text"}},
    {"per_layer_config says it", {"num_sliding_attention_heads"}, {"step3p5"}},
    {"empty, it says nothing", {"per_layer_config"}, {"dots3_note_text"}},
    {"rope_parameters says it", {"compress_rope_theta"}, {"deepseek_v4"}},
    {"nothing is rotated", {"rope_theta"}, {"granitemoehybrid"}},
    {"rope_type is original: nothing is scaled",
     {"attn_factor", "beta_fast", "beta_slow", "extrapolation_factor", "original_max_position_embeddings",
      "scaling_factor"},
     {"grok2"}},
    {"one group", {"use_grouped_topk"}, {"kimi_linear"}},
    {"a tensor to be ignored", {"router_bias"}, {"longcat_flash"}},
    {"a name for the values", {"attention_k_eq_v"}, {"gemma4_text"}},
    {"no layer shares keys", {"use_double_wide_mlp"}, {"gemma4_text"}},
    {"the layers have no inputs of their own", {"vocab_size_per_layer_input"}, {"gemma4_text"}},
    {"no shared expert", {"shared_moe_mode"}, {"minimax_text_01"}},
    {"partial_rotary_factor says it", {"rotary_dim"}, {"minimax_m3_text"}},
    {"no layer has n-grams",
     {"heads_per_ngram", "make_ngram_vocab_size_divisible_by", "ngram_size", "ngram_vocab_size_base",
      "ple_conv_kernel_size", "ple_embed_dim", "seed", "split_ngram_parts"},
     {"qwen4_exp"}},
};

const std::vector<Exception> kGenericExceptions = {
    {"the head is a tensor of its own: without it the file is refused", {"tie_word_embeddings"}, {"inkling_text"}},
    {"biases that the family always has are in the file",
     {"attention_bias", "mlp_bias"},
     {"ernie4_5_moe", "exaone_moe", "gpt_oss", "jetmoe", "qwen2_moe"}},
    {"norms of latents go by the name too",
     {"use_qk_norm"},
     {"axk1", "axk2", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots3_note_text",
      "glm4_moe_lite", "glm_moe_dsa", "hy_v4", "kimi_linear", "longcat_flash", "mistral4"}},
    {"layer_types says which layers slide, and none does", {"sliding_window"}},
};

json ReadConfig(const std::string& directory) {
  const std::string text = moe::testing::Content(directory + "/config.json");
  StatusOr<json> config = ParseJson(text, "config.json", {.non_finite = true});
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : json::object();
}

class FamilyFields : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    config_ = ReadConfig(kRoot + GetParam());
    const StatusOr<ModelDescription> model = ReadModelConfig(config_.dump());
    ASSERT_TRUE(model.ok()) << model.status();
    spec_ = model->spec;
    if (config_.contains("text_config")) text_ = text_ / "text_config";
  }

  // Whether the field at `path` with this value makes a difference.
  bool Matters(const json::json_pointer& path, const json& value) const {
    json config = config_;
    config[path] = value;
    const StatusOr<ModelDescription> model = ReadModelConfig(config.dump());
    return !model.ok() || !(model->spec == spec_) || !model->warnings.empty();
  }

  json config_;
  json::json_pointer text_;  // of the text model's fields
  ModelSpec spec_;
};

std::vector<json> Others(const json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) return {value.get<int64_t>() + 1, value.get<int64_t>() * 2 + 2, 0, 7};
  if (value.is_number()) return {value.get<double>() * 0.5 + 0.25, 0.0};
  if (value.is_string()) return {"no such thing"};
  if (value.is_null())
    return {true, 7, 0.5, "no such thing", json::array({1}), json::object({{"type", "no such thing"}})};
  json other = value;
  if (value.is_array()) {
    if (value.empty()) return {json::array({0}), json::array({1}), json::array({"no such thing"})};
    other.erase(other.size() - 1);
    json first = value;
    first[0] = value.back();
    return {other, first};
  }
  return {json::object(), json::object({{"rope_type", "no such thing"}})};
}

TEST_P(FamilyFields, OfTheFixture) {
  for (const auto& [field, value] : config_[text_].items()) {
    const std::vector<json> others = Others(value);
    const bool matters =
        std::any_of(others.begin(), others.end(), [&](const json& other) { return Matters(text_ / field, other); });
    EXPECT_TRUE(matters || Excepted(kFixtureExceptions, GetParam(), field)) << field << " is passed over: " << value;
  }
}

TEST_P(FamilyFields, Generic) {
  const json scaled = {{"rope_type", "no such thing"}, {"factor", 2.0}};
  const std::pair<const char*, std::vector<json>> fields[] = {
      {"hidden_act", {"relu"}},
      {"hidden_activation", {"relu"}},
      {"attention_bias", {true, false}},
      {"mlp_bias", {true, false}},
      {"norm_topk_prob", {true, false}},
      {"n_shared_experts", {0, 5}},
      {"position_embedding_type", {"alibi"}},
      {"rope_scaling", {scaled}},
      {"rope_parameters", {scaled}},
      {"tie_word_embeddings", {true, false}},
      {"scoring_func", {"no such thing"}},
      {"topk_method", {"no such thing"}},
      {"n_group", {3}},
      {"routed_scaling_factor", {3.5}},
      {"use_qk_norm", {true, false}},
      {"sliding_window", {7}},
      {"final_logit_softcapping", {3.5}},
      {"attn_logit_softcapping", {3.5}},
  };
  for (const auto& [field, values] : fields) {
    if (config_[text_].contains(field) && Excepted(kFixtureExceptions, GetParam(), field)) continue;
    const bool matters =
        std::any_of(values.begin(), values.end(), [&](const json& value) { return Matters(text_ / field, value); });
    EXPECT_TRUE(matters || Excepted(kGenericExceptions, GetParam(), field)) << field << " is passed over";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyFields, ::testing::ValuesIn(moe::testing::Families(kRoot)),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FamilyFields);

// What the fields of a family's reader may not say, with field and value in the message.
TEST(FamilyFieldsTest, Contradictions) {
  struct Case {
    const char* family;
    const char* field;
    json value;
    const char* shown;
  };
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const Case cases[] = {
      {"deepseek_v4", "qk_rope_head_dim", 4, "is 4"},
      {"gpt_oss", "hidden_act", "gelu", "\"gelu\""},
      {"step3p5", "hidden_act", "gelu", "\"gelu\""},
      {"granitemoehybrid", "position_embedding_type", "alibi", "\"alibi\""},
      {"granitemoehybrid", "rope_scaling", yarn, "\"yarn\""},
      {"jamba", "rope_scaling", yarn, "\"yarn\""},
      {"kimi_linear", "rope_scaling", yarn, "\"yarn\""},
      {"nemotron_h", "rope_parameters", yarn, "\"yarn\""},
      {"inkling_text", "rope_scaling", yarn, "\"yarn\""},
      {"deepseek_v2", "norm_topk_prob", true, "true"},
      {"hunyuan_v1_moe", "norm_topk_prob", false, "false"},
      {"afmoe", "route_norm", false, "false"},
      {"dbrx", "ffn_config", json{{"moe_normalize_expert_weights", -1.0}}, "-1"},
      // Fields of other families.
      {"mixtral", "norm_topk_prob", false, "false"},
      {"mixtral", "scoring_func", "sigmoid", "\"sigmoid\""},
      {"mixtral", "n_shared_experts", 1, "1"},
      {"qwen3_moe", "routed_scaling_factor", 2.5, "2.5"},
      {"jamba", "position_embedding_type", "rope", "\"rope\""},
      {"nemotron_h", "hidden_act", "silu", "\"silu\""},
      {"olmoe", "attn_logit_softcapping", 30.0, "30"},
  };
  for (const Case& one : cases) {
    json config = ReadConfig(kRoot + one.family);
    (config.contains("text_config") ? config["text_config"] : config)[one.field] = one.value;
    const Status status = ReadModelConfig(config.dump()).status();
    const std::string message(status.message());
    const std::string kind = ErrorKind(status);
    EXPECT_TRUE(kind == "UNSUPPORTED" || kind == "INVALID") << one.family << " " << one.field << ": " << status;
    EXPECT_NE(message.find(one.field), std::string::npos) << one.family << " " << one.field << ": " << status;
    EXPECT_NE(message.find(one.shown), std::string::npos) << one.family << " " << one.field << ": " << status;
  }
}

// Fields that transformers does not compute with: the same whatever they say, with a warning that names field and
// value.
TEST(FamilyFieldsTest, UnusedByTransformers) {
  const std::tuple<const char*, const char*, json> cases[] = {
      {"deepseek_v2", "moe_layer_freq", 2},
      {"deepseek_v3", "moe_layer_freq", 2},
      {"deepseek_v32", "moe_layer_freq", 2},
      {"deepseek_v32", "mlp_bias", true},
      {"glm_moe_dsa", "mlp_bias", true},
      {"dots3_note_text", "mlp_bias", true},
      {"deepseek_v4", "norm_topk_prob", false},
      {"deepseek_v4", "n_shared_experts", 2},
      {"deepseek_v4", "attention_bias", true},
      {"kimi_linear", "mla_use_nope", false},
      {"inkling_text", "shared_expert_sink", false},
      {"minimax_m3_text", "use_routing_bias", false},
  };
  for (const auto& [family, field, value] : cases) {
    json config = ReadConfig(kRoot + family);
    json& text = config.contains("text_config") ? config["text_config"] : config;
    text.erase(field);
    const auto before = ReadModelConfig(config.dump());
    ASSERT_TRUE(before.ok()) << family << ": " << before.status();
    EXPECT_TRUE(before->warnings.empty()) << family << ": " << before->warnings[0];
    text[field] = value;
    const auto model = ReadModelConfig(config.dump());
    ASSERT_TRUE(model.ok()) << family << " " << field << ": " << model.status();
    EXPECT_TRUE(model->spec == before->spec) << family << " " << field;
    ASSERT_EQ(model->warnings.size(), 1u) << family << " " << field;
    EXPECT_NE(model->warnings[0].find(Cat(field, " is ", value.dump())), std::string::npos) << model->warnings[0];
    text[field] = "no such thing";
    EXPECT_EQ(ErrorKind(ReadModelConfig(config.dump()).status()), "INVALID") << family << " " << field;
  }
}

// … and what they may say, of fields that the family does not read.
TEST(FamilyFieldsTest, Agreements) {
  const std::tuple<const char*, const char*, json> cases[] = {
      {"mixtral", "norm_topk_prob", true},
      {"mixtral", "scoring_func", "softmax"},
      {"mixtral", "n_shared_experts", 0},
      {"mixtral", "routed_scaling_factor", 1.0},
      {"mixtral", "n_group", 1},
      {"mixtral", "position_embedding_type", "rope"},
      {"jamba", "position_embedding_type", "nope"},
      {"nemotron_h", "hidden_act", "relu2"},
      {"granitemoehybrid", "rope_scaling", json{{"rope_type", "default"}}},
      {"olmoe", "attn_logit_softcapping", nullptr},
      {"kimi_linear", "rope_theta", 10000.0},
  };
  for (const auto& [family, field, value] : cases) {
    json config = ReadConfig(kRoot + family);
    config[field] = value;
    const auto model = ReadModelConfig(config.dump());
    EXPECT_TRUE(model.ok()) << family << " " << field << ": " << model.status();
  }
}

}  // namespace
}  // namespace moe
