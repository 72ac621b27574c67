// Indices without the files they name, planned tensors, and the number of parameters.
#include "loaders/weight_index.h"

#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "loaders/model_loader.h"
#include "loaders/parameter_count.h"
#include "loaders/tensor_plan.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::EditConfig;
using moe::testing::FileMap;
using moe::testing::SoundFiles;
using nlohmann::json;

// The sound files with their tensors in two shards, of which only the index is there.
FileMap IndexOnly(const std::function<void(json*)>& edit = {}) {
  FileMap files = SoundFiles();
  json index = moe::testing::Shard(&files);
  if (edit) edit(&index);
  for (auto it = files.begin(); it != files.end();) {
    it = it->first.ends_with(".safetensors") ? files.erase(it) : std::next(it);
  }
  files["model.safetensors.index.json"] = index.dump();
  return files;
}

StatusOr<std::unique_ptr<LoadedModel>> Load(const FileMap& files) {
  return LoadModel(*moe::testing::InMemory(files), {.absent_weights = true});
}

IndexReport Report(const FileMap& files) {
  const auto model = Load(files);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok() || !(*model)->index) return {};
  EXPECT_EQ((*model)->weights, nullptr);
  return *(*model)->index;
}

ModelDescription Describe(const json& config) {
  auto model = ReadModelConfig(config.dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(model).value();
}

TEST(WeightIndexTest, NamesAreCheckedWithoutTheFiles) {
  const IndexReport report = Report(IndexOnly([](json* index) { (*index)["metadata"]["total_size"] = 1.5e12; }));
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.tensors, static_cast<int64_t>(moe::testing::TinyTensors().size()));
  EXPECT_EQ(report.total_size, 1500000000000);
  EXPECT_EQ(report.shards, 2);
  EXPECT_EQ(report.shards_here, 0);
}

TEST(WeightIndexTest, MissingUnknownAndIgnoredNames) {
  const IndexReport report = Report(IndexOnly([](json* index) {
    json& map = (*index)["weight_map"];
    const json shard = map["model.norm.weight"];
    map.erase("model.norm.weight");
    map["model.layers.0.mlp.experts.2.up_proj.weight"] = shard;
    map["model.layers.0.self_attn.rotary_emb.inv_freq"] = shard;
  }));
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(report.missing.count, 1);
  EXPECT_EQ(report.missing.first, std::vector<std::string>{"model.norm.weight"});
  EXPECT_EQ(report.unknown.count, 1);
  EXPECT_EQ(report.unknown.first, std::vector<std::string>{"\"model.layers.0.mlp.experts.2.up_proj.weight\""});
  EXPECT_EQ(report.ignored, (std::map<std::string, int64_t>{{"stored rotary frequencies", 1}}));
}

TEST(WeightIndexTest, AQuantisedCheckpointIsRecognised) {
  const IndexReport report = Report(IndexOnly([](json* index) {
    json& map = (*index)["weight_map"];
    map["model.layers.0.mlp.experts.0.up_proj.weight_scale_inv"] = map["model.norm.weight"];
  }));
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(report.quantized, "model.layers.0.mlp.experts.0.up_proj.weight_scale_inv");
}

TEST(WeightIndexTest, AHeadBesideTiedEmbeddings) {
  FileMap files = IndexOnly();
  EditConfig(&files, [](json* config) { (*config)["tie_word_embeddings"] = true; });
  const IndexReport report = Report(files);
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.ignored.size(), 1u);
}

TEST(WeightIndexTest, FilesThatAreThereAreRead) {
  FileMap files = SoundFiles();
  files["model.safetensors.index.json"] = moe::testing::Shard(&files).dump();
  const auto whole = Load(files);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_NE((*whole)->weights, nullptr);
  EXPECT_FALSE((*whole)->index.has_value());

  // Half a download.
  for (const auto& [name, content] : files) {
    if (!name.ends_with(".safetensors")) continue;
    files.erase(name);
    break;
  }
  EXPECT_EQ(Report(files).shards_here, 1);
  EXPECT_EQ(ErrorKind(LoadModel(*moe::testing::InMemory(files), {}).status()), "CORRUPT");
}

TEST(WeightIndexTest, NeitherFilesNorIndex) {
  FileMap files = SoundFiles();
  files.erase("model.safetensors");
  const auto model = Load(files);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights, nullptr);
  EXPECT_FALSE((*model)->index.has_value());
}

TEST(WeightIndexTest, BadIndicesAreInvalid) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": "../b"}})"}) {
    FileMap files = IndexOnly();
    files["model.safetensors.index.json"] = text;
    const Status status = Load(files).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_NE(std::string(status.message()).find("model.safetensors.index.json"), std::string::npos) << status;
  }
}

const PlannedTensors* Find(const TensorPlan& plan, const std::string& pattern) {
  for (const PlannedTensors& tensors : plan.tensors) {
    if (tensors.pattern == pattern) return &tensors;
  }
  return nullptr;
}

TEST(TensorPlanTest, OneLineForEachPattern) {
  json config = moe::testing::TinyConfig();
  config["num_hidden_layers"] = 4;
  config["mlp_only_layers"] = {1};
  const ModelDescription model = Describe(config);
  std::vector<std::string> names;
  const TensorPlan plan =
      PlanTensors(model.spec, model.rules, [&names](const std::string& name) { names.push_back(name); });
  // Embedding, final norm, head; 8 tensors of attention and norms a layer; a router and 2 experts of 3, or an MLP.
  EXPECT_EQ(plan.count, 3 + 4 * 8 + 3 * 7 + 3);
  EXPECT_EQ(names.size(), static_cast<size_t>(plan.count));
  EXPECT_EQ(plan.parameters, CountParameters(model.spec).total);
  const PlannedTensors* experts = Find(plan, "model.layers.{l}.mlp.experts.{e}.down_proj.weight");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->shape, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(experts->holds, std::vector<std::string>{"layers.{l}.moe.experts.{e}.down"});
  EXPECT_EQ(experts->layers, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(experts->experts, 2);
  EXPECT_EQ(experts->count, 6);
  EXPECT_EQ(experts->parameters, 6 * 32);
  const PlannedTensors* head = Find(plan, "lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_TRUE(head->layers.empty());
  EXPECT_EQ(head->experts, 0);
}

TEST(TensorPlanTest, ATensorOfSeveralIsPlannedOnce) {
  const ModelDescription model = Describe({{"architectures", {"GraniteMoeForCausalLM"}},
                                           {"vocab_size", 16},
                                           {"hidden_size", 8},
                                           {"intermediate_size", 4},
                                           {"num_hidden_layers", 2},
                                           {"num_attention_heads", 2},
                                           {"num_local_experts", 3},
                                           {"num_experts_per_tok", 2}});
  const TensorPlan plan = PlanTensors(model.spec, model.rules);
  const PlannedTensors* fused = Find(plan, "model.layers.{l}.block_sparse_moe.input_linear.weight");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->shape, (std::vector<int64_t>{3, 8, 8}));
  EXPECT_EQ(fused->holds,
            (std::vector<std::string>{"layers.{l}.moe.experts.{e}.gate", "layers.{l}.moe.experts.{e}.up"}));
  EXPECT_EQ(fused->experts, 0);
  EXPECT_EQ(fused->count, 2);
  EXPECT_EQ(plan.parameters, CountParameters(model.spec).total);
}

TEST(ParameterCountTest, RoutedExpertsCountAsFarAsTheyAreChosen) {
  const ModelDescription model = Describe(moe::testing::TinyConfig());
  const ParameterCount count = CountParameters(model.spec);
  EXPECT_EQ(count.embedding, 20 * 8);
  EXPECT_EQ(count.head, 20 * 8);
  EXPECT_EQ(count.total - count.active, 3 * 4 * 8);  // one of two experts
}

}  // namespace
}  // namespace moe
