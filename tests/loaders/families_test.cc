// Each family's names and switches on a tiny checkpoint written out by hand, independently of its rules.
#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "loaders/weight_store.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::EditTensors;
using moe::testing::FileMap;
using moe::testing::TinyTensor;
using nlohmann::json;

struct Loaded {
  Status status;
  ModelSpec spec;
  std::unique_ptr<WeightStore> weights;
};

Loaded Load(const FileMap& content) {
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(content);
  Loaded loaded;
  auto model = ReadModelConfig((*files->Open("config.json"))->text());
  loaded.status = model.status();
  if (!model.ok()) return loaded;
  loaded.spec = model->spec;
  auto weights = OpenWeightStore(*files, &loaded.spec, model->rules);
  loaded.status = weights.status();
  if (weights.ok()) loaded.weights = std::move(weights).value();
  return loaded;
}

void Rename(std::string* name, const std::string& from, const std::string& to) {
  const size_t at = name->find(from);
  if (at != std::string::npos) name->replace(at, from.size(), to);
}

void DropQkNorms(std::vector<TinyTensor>* tensors) {
  std::erase_if(*tensors, [](const TinyTensor& tensor) {
    return tensor.name.ends_with("q_norm.weight") || tensor.name.ends_with("k_norm.weight");
  });
}

TEST(FamiliesTest, Mixtral) {
  FileMap files = moe::testing::SoundFiles();
  json config = moe::testing::TinyConfig();
  config["architectures"] = json::array({"MixtralForCausalLM"});
  config["num_local_experts"] = config["num_experts"];
  config["intermediate_size"] = 4;
  for (const char* other : {"num_experts", "moe_intermediate_size", "rope_theta", "norm_topk_prob"})
    config.erase(other);
  config["sliding_window"] = nullptr;
  files["config.json"] = config.dump();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    DropQkNorms(tensors);
    for (TinyTensor& tensor : *tensors) {
      Rename(&tensor.name, "mlp.", "block_sparse_moe.");
      Rename(&tensor.name, "gate_proj", "w1");
      Rename(&tensor.name, "down_proj", "w2");
      Rename(&tensor.name, "up_proj", "w3");
    }
  });
  const Loaded loaded = Load(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status;
  EXPECT_EQ(loaded.weights->SourceName("layers.0.moe.experts.1.up"),
            "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(std::get<MoeSpec>(loaded.spec.layers[0].ffn).router.normalize, RouterSpec::Normalize::kSum);
  EXPECT_EQ(std::get<AttentionSpec>(loaded.spec.layers[0].mixer).qk_norm, QkNorm::kNone);
  EXPECT_NEAR(std::get<AttentionSpec>(loaded.spec.layers[0].mixer).rope->inv_freq[1], 1e-3, 1e-9);  // theta 1e6
  config["sliding_window"] = 16;
  files["config.json"] = config.dump();
  EXPECT_EQ(std::get<AttentionSpec>(Load(files).spec.layers[0].mixer).window, 16);
}

TEST(FamiliesTest, Qwen2Moe) {
  FileMap files = moe::testing::SoundFiles();
  json config = moe::testing::TinyConfig();
  config["architectures"] = json::array({"Qwen2MoeForCausalLM"});
  config["shared_expert_intermediate_size"] = 6;
  config["norm_topk_prob"] = false;
  files["config.json"] = config.dump();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    DropQkNorms(tensors);
    const std::string layer = "model.layers.0.";
    tensors->push_back({layer + "self_attn.q_proj.bias", {8}});
    tensors->push_back({layer + "self_attn.k_proj.bias", {4}});
    tensors->push_back({layer + "self_attn.v_proj.bias", {4}});
    tensors->push_back({layer + "mlp.shared_expert.gate_proj.weight", {6, 8}});
    tensors->push_back({layer + "mlp.shared_expert.up_proj.weight", {6, 8}});
    tensors->push_back({layer + "mlp.shared_expert.down_proj.weight", {8, 6}});
    tensors->push_back({layer + "mlp.shared_expert_gate.weight", {1, 8}});
  });
  const Loaded loaded = Load(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status;
  const auto& moe = std::get<MoeSpec>(loaded.spec.layers[0].ffn);
  EXPECT_EQ(moe.router.normalize, RouterSpec::Normalize::kNone);
  ASSERT_TRUE(moe.shared.has_value());
  EXPECT_TRUE(moe.shared->sigmoid_gated);
  EXPECT_TRUE(loaded.weights->Has("layers.0.attn.q.bias"));
  EXPECT_FALSE(loaded.weights->Has("layers.0.attn.o.bias"));
  EXPECT_EQ(loaded.weights->Get("layers.0.moe.shared_gate").rows, 1);
}

}  // namespace
}  // namespace moe
