// The two demo models as ModelSpec and WeightStore.
#include <gtest/gtest.h>

#include "loaders/architectures.h"
#include "loaders/weight_store.h"

namespace moe {
namespace {

struct Opened {
  ModelSpec spec;
  std::unique_ptr<WeightStore> weights;
};

Opened OpenModel(const ModelFiles& files) {
  const auto config = files.Open("config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  auto model = ReadModelConfig((*config)->text());
  EXPECT_TRUE(model.ok()) << model.status();
  auto weights = OpenWeightStore(files, &model->spec, model->rules);
  EXPECT_TRUE(weights.ok()) << weights.status();
  return {model->spec, std::move(weights).value()};
}

Opened OpenDemo(const std::string& name) {
  const auto files = OpenModelDirectory(std::string(MOE_SOURCE_DIR "/loaders/demo/") + name);
  EXPECT_TRUE(files.ok()) << files.status();
  return OpenModel(**files);
}

TEST(DemoTest, Qwen3Moe) {
  const Opened demo = OpenDemo("shakespeare-qwen3moe");
  EXPECT_EQ(demo.spec.family, "qwen3_moe");
  EXPECT_EQ(demo.spec.layers.size(), 4u);
  EXPECT_TRUE(demo.spec.tied_head);
  EXPECT_FALSE(demo.weights->Has("lm_head"));
  EXPECT_FALSE(demo.spec.HasRecurrentState());
  EXPECT_EQ(demo.spec.MoeLayers(), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(demo.spec.MaxExperts(), 16);
  EXPECT_EQ(demo.spec.MaxTopK(), 4);
  EXPECT_EQ(demo.spec.eos_token_ids, std::vector<int32_t>{2047});
  EXPECT_EQ(demo.weights->expert_dtype(), DType::kBF16);
  EXPECT_EQ(demo.weights->total_bytes(), 7228160);
  const auto& attn = std::get<AttentionSpec>(demo.spec.layers[1].mixer);
  EXPECT_EQ(attn.num_heads, 4);
  EXPECT_EQ(attn.num_kv_heads, 2);
  EXPECT_EQ(attn.head_dim, 32);
  EXPECT_EQ(attn.qk_norm, QkNorm::kPerHead);
  ASSERT_TRUE(attn.rope.has_value());
  EXPECT_EQ(attn.rope->inv_freq.size(), 16u);
  EXPECT_EQ(attn.rope->inv_freq[0], 1.0);
  EXPECT_EQ(std::get<MoeSpec>(demo.spec.layers[0].ffn).router.normalize, RouterSpec::Normalize::kSum);
}

TEST(DemoTest, NemotronH) {
  const Opened demo = OpenDemo("shakespeare-nemotronh");
  EXPECT_EQ(demo.spec.family, "nemotron_h");
  EXPECT_TRUE(demo.spec.HasRecurrentState());
  EXPECT_EQ(demo.spec.MoeLayers(), (std::vector<int64_t>{1, 3, 5, 7}));
  const auto& mamba = std::get<Mamba2Spec>(demo.spec.layers[0].mixer);
  EXPECT_EQ(mamba.in_proj_rows(), 648);
  EXPECT_EQ(mamba.conv_dim(), 384);
  EXPECT_EQ(mamba.dt_min, 0.0f);
  EXPECT_TRUE(std::isinf(mamba.dt_max));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(demo.spec.layers[0].ffn));
  const auto& attn = std::get<AttentionSpec>(demo.spec.layers[2].mixer);
  EXPECT_FALSE(attn.rope.has_value());
  const auto& moe = std::get<MoeSpec>(demo.spec.layers[1].ffn);
  EXPECT_EQ(moe.latent_size, 96);
  EXPECT_FALSE(moe.expert.gated);
  EXPECT_EQ(moe.router.scale, 2.5f);
  EXPECT_TRUE(moe.router.select_bias);
  ASSERT_TRUE(moe.shared.has_value());
  EXPECT_EQ(moe.shared->mlp.intermediate_size, 64);
  // A mixed file: the router is float32, the experts decide.
  EXPECT_EQ(demo.weights->Get("layers.1.moe.router").dtype, DType::kF32);
  EXPECT_EQ(demo.weights->expert_dtype(), DType::kBF16);
  // [384, 1, 4] on disk.
  const WeightSource conv = demo.weights->Get("layers.0.mamba.conv");
  EXPECT_EQ(conv.rows, 384);
  EXPECT_EQ(conv.cols, 4);
  EXPECT_EQ(conv.row_stride, 4);
  EXPECT_EQ(demo.weights->SourceName("layers.1.moe.experts.7.up"), "backbone.layers.1.mixer.experts.7.up_proj.weight");
}

TEST(DemoTest, EveryRequiredTensorIsThere) {
  for (const char* name : {"shakespeare-qwen3moe", "shakespeare-nemotronh"}) {
    const Opened demo = OpenDemo(name);
    int64_t bytes = 0;
    for (const TensorNeed& need : RequiredTensors(demo.spec)) {
      ASSERT_TRUE(demo.weights->Has(need.name)) << need.name;
      const WeightSource source = demo.weights->Get(need.name);
      EXPECT_EQ(source.rows, need.rows);
      EXPECT_EQ(source.cols, need.cols);
      bytes += need.rows * need.cols * static_cast<int64_t>(DTypeSize(source.dtype));
      demo.weights->Release(need.name);
    }
    EXPECT_EQ(bytes, demo.weights->total_bytes());
    // Released pages come back from the file.
    EXPECT_TRUE(std::isfinite(LoadFloat(demo.weights->Get("embed").dtype, demo.weights->Get("embed").data)));
  }
}

}  // namespace
}  // namespace moe
