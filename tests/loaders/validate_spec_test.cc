#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

ModelSpec TinySpec() {
  auto model = ReadModelConfig(moe::testing::TinyConfig().dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return model->spec;
}

void ExpectInvalid(const std::function<void(ModelSpec*, AttentionSpec*, MoeSpec*)>& spoil, const std::string& word) {
  ModelSpec spec = TinySpec();
  spoil(&spec, &std::get<AttentionSpec>(spec.layers[0].mixer), &std::get<MoeSpec>(spec.layers[0].ffn));
  const Status status = ValidateSpec(spec);
  EXPECT_EQ(ErrorKind(status), "INVALID") << word;
  EXPECT_NE(std::string(status.message()).find(word), std::string::npos) << status;
}

TEST(ValidateSpecTest, AcceptsTheTinyModel) {
  EXPECT_TRUE(ValidateSpec(TinySpec()).ok());
}

TEST(ValidateSpecTest, RefusesContradictions) {
  ExpectInvalid([](auto* s, auto*, auto*) { s->layers.clear(); }, "num_hidden_layers");
  ExpectInvalid([](auto* s, auto*, auto*) { s->vocab_size = 0; }, "vocab_size");
  ExpectInvalid([](auto* s, auto*, auto*) { s->hidden_size = -8; }, "hidden_size");
  ExpectInvalid([](auto* s, auto*, auto*) { s->eos_token_ids = {20}; }, "eos_token_id");
  ExpectInvalid([](auto* s, auto*, auto*) { s->bos_token_id = 20; }, "bos_token_id");
  ExpectInvalid([](auto*, auto* a, auto*) { a->num_kv_heads = 3; }, "num_key_value_heads");
  ExpectInvalid([](auto*, auto* a, auto*) { a->window = -1; }, "sliding_window");
  ExpectInvalid([](auto*, auto* a, auto*) { a->rope->rotary_dim = 3; }, "head_dim");
  ExpectInvalid([](auto*, auto*, auto* m) { m->top_k = 3; }, "num_experts_per_tok");
  ExpectInvalid([](auto*, auto*, auto* m) { m->num_experts = 0; }, "num_experts");
  ExpectInvalid([](auto*, auto*, auto* m) { m->router.num_groups = 0; }, "n_group");
  ExpectInvalid(
      [](auto*, auto*, auto* m) {
        m->num_experts = 8;
        m->router.num_groups = 3;
      },
      "n_group");
  ExpectInvalid(
      [](auto*, auto*, auto* m) {
        m->num_experts = 8;
        m->router.num_groups = 2;
        m->router.top_groups = 3;
      },
      "topk_group");
  ExpectInvalid(
      [](auto*, auto*, auto* m) {
        m->num_experts = 8;
        m->top_k = 3;
        m->router.num_groups = 4;
      },
      "topk_group");
  ExpectInvalid([](auto*, auto*, auto* m) { m->expert.intermediate_size = 0; }, "moe_intermediate_size");
}

// What no kernel computes is refused, not left out: biases of MLPs and of query and key norms.
TEST(ValidateSpecTest, RefusesBiasesThatNothingAdds) {
  ModelSpec spec = TinySpec();
  // A LayerNorm: an RMS norm with a bias is a contradiction already.
  std::get<AttentionSpec>(spec.layers[0].mixer).qk_norm_spec = {NormKind::kLayer, 1e-6f, true};
  EXPECT_EQ(ErrorKind(ValidateSpec(spec)), "UNSUPPORTED");
}

// The kernels keep a channel's taps on the stack: a longer convolution must not reach them.
TEST(ValidateSpecTest, RefusesConvolutionsLongerThanTheKernelsHold) {
  ModelSpec spec = TinySpec();
  Mamba2Spec mamba;
  mamba.num_heads = 2;
  mamba.head_dim = 4;
  mamba.state_size = 4;
  mamba.num_groups = 1;
  mamba.conv_kernel = Mamba2Spec::kMaxConvKernel;
  spec.layers[0].mixer = mamba;
  EXPECT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec);
  ++mamba.conv_kernel;
  spec.layers[0].mixer = mamba;
  EXPECT_NE(std::string(ValidateSpec(spec).message()).find("conv_kernel"), std::string::npos);
}

TEST(ValidateSpecTest, RefusesTooManyTensors) {
  ModelSpec spec = TinySpec();
  std::get<MoeSpec>(spec.layers[0].ffn).num_experts = limits::kMaxExperts;
  spec.layers.resize(100, spec.layers[0]);
  const Status status = ValidateSpec(spec);
  EXPECT_EQ(ErrorKind(status), "INVALID");
  EXPECT_NE(std::string(status.message()).find("num_experts"), std::string::npos);
}

// The expert count under its spellings.
TEST(ArchitecturesTest, ExpertCountSpellings) {
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    nlohmann::json config = moe::testing::TinyConfig();
    config.erase("num_experts");
    config[name] = 4;
    const auto model = ReadModelConfig(config.dump());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->spec.MaxExperts(), 4) << name;
  }
}

TEST(ArchitecturesTest, DispatchesOnArchitecturesFirst) {
  nlohmann::json config = moe::testing::TinyConfig();
  config["model_type"] = "nemotron_h";
  auto model = ReadModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->spec.family, "qwen3_moe");
  config["model_type"] = "qwen3_moe";
  config.erase("architectures");
  model = ReadModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->spec.architecture, "Qwen3MoeForCausalLM");
}

TEST(ArchitecturesTest, DenseLayers) {
  nlohmann::json config = moe::testing::TinyConfig();
  config["num_hidden_layers"] = 6;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const auto model = ReadModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->spec.MoeLayers(), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(std::get<MlpSpec>(model->spec.layers[3].ffn).intermediate_size, 8);
}

TEST(ArchitecturesTest, NestedTextConfig) {
  nlohmann::json text = moe::testing::TinyConfig();
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  const nlohmann::json config = {{"architectures", nlohmann::json::array({"Qwen3MoeForCausalLM"})},
                                 {"tie_word_embeddings", true},
                                 {"text_config", text}};
  const auto model = ReadModelConfig(config.dump());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->spec.tied_head);
  EXPECT_EQ(model->spec.hidden_size, 8);
}

// A family of its own is one function and one line of a table.
void ReadToy(ConfigReader* config, ModelSpec* spec, TensorRules* rules) {
  spec->vocab_size = config->Int("symbols", 1, 1000);
  spec->hidden_size = config->Int("width", 1, 1000);
  spec->max_positions = 16;
  spec->layers.emplace_back().ffn = MlpSpec{.intermediate_size = 4};
  rules->Add("embed", "in");
}

TEST(ArchitecturesTest, TableIsData) {
  const Architecture table[] = {{"ToyForCausalLM", nullptr, "toy", ReadToy}};
  const char* text = R"({"architectures": ["ToyForCausalLM"], "symbols": 20, "width": 8})";
  const auto model = ReadModelConfig(text, "config.json", table);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->spec.family, "toy");
  EXPECT_EQ(ErrorKind(ReadModelConfig(text).status()), "UNSUPPORTED");
}

nlohmann::json NemotronConfig() {
  const auto files = OpenModelDirectory(MOE_SOURCE_DIR "/loaders/demo/shakespeare-nemotronh");
  EXPECT_TRUE(files.ok());
  return nlohmann::json::parse((*(*files)->Open("config.json"))->text());
}

TEST(NemotronHTest, LayerPatterns) {
  nlohmann::json config = NemotronConfig();
  for (const char* only : {"hybrid_override_pattern", "layers_block_type"}) {
    nlohmann::json one = config;
    one.erase(only);
    one.erase("num_hidden_layers");
    EXPECT_TRUE(ReadModelConfig(one.dump()).ok()) << only;
  }
  const auto expect = [](const nlohmann::json& json, const char* kind, const char* word) {
    const Status status = ReadModelConfig(json.dump()).status();
    EXPECT_EQ(ErrorKind(status), kind) << word;
    EXPECT_NE(std::string(status.message()).find(word), std::string::npos) << status;
  };
  nlohmann::json contradictory = config;
  contradictory["hybrid_override_pattern"] = "MEMEMEME";
  expect(contradictory, "INVALID", "layers_block_type");
  nlohmann::json wrong_count = config;
  wrong_count["num_hidden_layers"] = 9;
  expect(wrong_count, "INVALID", "num_hidden_layers");
  nlohmann::json unknown = config;
  unknown.erase("layers_block_type");
  unknown["hybrid_override_pattern"] = "ME*EMEXE";
  expect(unknown, "UNSUPPORTED", "\"X\"");
  nlohmann::json unknown_type = config;
  unknown_type.erase("hybrid_override_pattern");
  unknown_type["layers_block_type"][0] = "quantum";
  expect(unknown_type, "UNSUPPORTED", "quantum");
  nlohmann::json neither = config;
  neither.erase("layers_block_type");
  neither.erase("hybrid_override_pattern");
  expect(neither, "INVALID", "hybrid_override_pattern");
}

TEST(NemotronHTest, RefusesWhatItDoesNotKnow) {
  const struct {
    const char* field;
    nlohmann::json value;
    const char* kind;
  } cases[] = {
      {"mlp_hidden_act", "silu", "UNSUPPORTED"},
      {"mamba_hidden_act", "gelu", "UNSUPPORTED"},
      {"sliding_window", 128, "UNSUPPORTED"},
      {"mamba_proj_bias", true, "UNSUPPORTED"},
      {"n_group", 5, "INVALID"},
      {"topk_group", 2, "INVALID"},
      {"num_experts_per_tok", 33, "INVALID"},
      {"n_groups", 3, "INVALID"},
      {"n_groups", 0, "INVALID"},
      {"mamba_num_heads", nullptr, "INVALID"},
      {"time_step_limit", {0.0}, "INVALID"},
      {"time_step_limit", {1.0, 0.5}, "INVALID"},
      {"moe_latent_size", -1, "INVALID"},
      {"routed_scaling_factor", "x", "INVALID"},
      {"head_dim", nullptr, "INVALID"},
      {"num_key_value_heads", 3, "INVALID"},
      {"layer_norm_epsilon", -1, "INVALID"},
  };
  for (const auto& one : cases) {
    nlohmann::json config = NemotronConfig();
    config[one.field] = one.value;
    const Status status = ReadModelConfig(config.dump()).status();
    EXPECT_EQ(ErrorKind(status), one.kind) << one.field << " " << one.value << ": " << status;
    EXPECT_NE(std::string(status.message()).find(one.field), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace moe
