#include "loaders/weight_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "loaders/architectures.h"
#include "loaders/quantized_names.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::EditConfig;
using moe::testing::EditTensors;
using moe::testing::FileMap;
using moe::testing::Floats;
using moe::testing::SoundFiles;
using moe::testing::TinyTensor;
using nlohmann::json;

struct Opened {
  Status status;
  ModelSpec spec;
  std::unique_ptr<WeightStore> weights;
};

Opened Open(const FileMap& content) {
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(content);
  auto model = ReadModelConfig((*files->Open("config.json"))->text());
  EXPECT_TRUE(model.ok()) << model.status();
  Opened opened;
  opened.spec = model->spec;
  auto weights = OpenWeightStore(*files, &opened.spec, model->rules, model->quantization);
  opened.status = weights.status();
  if (weights.ok()) opened.weights = std::move(weights).value();
  return opened;
}

std::vector<float> Values(const WeightSource& source) {
  std::vector<float> values;
  for (int64_t r = 0; r < source.rows; ++r) {
    for (int64_t c = 0; c < source.cols; ++c) {
      values.push_back(LoadFloat(
          source.dtype,
          source.data + static_cast<size_t>(r * source.row_stride + c * source.col_stride) * DTypeSize(source.dtype)));
    }
  }
  return values;
}

TinyTensor Take(std::vector<TinyTensor>* tensors, const std::string& name) {
  for (size_t i = 0; i < tensors->size(); ++i) {
    if ((*tensors)[i].name != name) continue;
    TinyTensor tensor = (*tensors)[i];
    tensors->erase(tensors->begin() + static_cast<std::ptrdiff_t>(i));
    return tensor;
  }
  ADD_FAILURE() << name;
  return {};
}

void ExpectError(const Opened& opened, const char* kind, const std::string& word) {
  EXPECT_EQ(ErrorKind(opened.status), kind) << opened.status;
  EXPECT_NE(std::string(opened.status.message()).find(word), std::string::npos) << opened.status;
}

std::string Bf16(size_t count) {
  std::string data;
  for (size_t i = 0; i < count; ++i) {
    const bf16_t value = FloatToBf16(static_cast<float>(i) / 8);
    data.append(reinterpret_cast<const char*>(&value), 2);
  }
  return data;
}

// The fused form that transformers saves holds the same matrices as one tensor per expert.
TEST(WeightStoreTest, FusedExpertsEqualSeparateOnes) {
  const Opened separate = Open(SoundFiles());
  ASSERT_TRUE(separate.status.ok()) << separate.status;
  std::string gate_up, down;
  for (int e = 0; e < 2; ++e) {
    const std::string prefix = Cat("layers.0.moe.experts.", e, ".");
    for (const char* name : {"gate", "up"})
      gate_up += moe::testing::Floats(Values(separate.weights->Get(prefix + name)));
    down += moe::testing::Floats(Values(separate.weights->Get(prefix + "down")));
  }
  FileMap files = SoundFiles();
  EditTensors(&files, [&](std::vector<TinyTensor>* tensors) {
    std::erase_if(*tensors,
                  [](const TinyTensor& tensor) { return tensor.name.find(".experts.") != std::string::npos; });
    tensors->push_back({"model.layers.0.mlp.experts.gate_up_proj", {2, 8, 8}, "F32", gate_up});
    tensors->push_back({"model.layers.0.mlp.experts.down_proj", {2, 8, 4}, "F32", down});
  });
  const Opened fused = Open(files);
  ASSERT_TRUE(fused.status.ok()) << fused.status;
  for (const TensorNeed& need : RequiredTensors(separate.spec)) {
    EXPECT_EQ(Values(separate.weights->Get(need.name)), Values(fused.weights->Get(need.name))) << need.name;
  }
  EXPECT_EQ(fused.weights->total_bytes(), separate.weights->total_bytes());
}

// The head is the embedding then, which the checkpoint stores once.
TEST(WeightStoreTest, TiedHeadNeedsNoTensor) {
  FileMap files = SoundFiles();
  EditConfig(&files, [](json* config) { (*config)["tie_word_embeddings"] = true; });
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) { Take(tensors, "lm_head.weight"); });
  const Opened opened = Open(files);
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_TRUE(opened.spec.tied_head);
  EXPECT_FALSE(opened.weights->Has("lm_head"));
}

TEST(WeightStoreTest, TiedHeadStoredTwiceIsSkipped) {
  FileMap files = SoundFiles();
  EditConfig(&files, [](json* config) { (*config)["tie_word_embeddings"] = true; });
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    const moe::testing::TinyFile sound = moe::testing::LayOut(*tensors);
    tensors->back().data = sound.data.substr(0, 20 * 8 * 4);  // the embedding is the first tensor
  });
  const Opened opened = Open(files);
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_TRUE(opened.spec.tied_head);
  EXPECT_FALSE(opened.weights->Has("lm_head"));
  EXPECT_EQ(opened.weights->ignored_tensors(), 1);
  EXPECT_EQ(opened.weights->total_bytes(), 3008 - 640);
}

// As in transformers: a head with values of its own is not replaced by the embedding.
TEST(WeightStoreTest, DifferentHeadBesideTiedEmbeddingsIsUsed) {
  FileMap files = SoundFiles();
  EditConfig(&files, [](json* config) { (*config)["tie_word_embeddings"] = true; });
  const Opened opened = Open(files);
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_FALSE(opened.spec.tied_head);
  ASSERT_TRUE(opened.weights->Has("lm_head"));
  EXPECT_NE(Values(opened.weights->Get("lm_head")), Values(opened.weights->Get("embed")));
}

// It is not taken for tied because the tensor is absent.
TEST(WeightStoreTest, UntiedHeadMustBeThere) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) { Take(tensors, "lm_head.weight"); });
  ExpectError(Open(files), "INVALID", "lm_head.weight");
}

// One layer more than num_hidden_layers.
TEST(WeightStoreTest, DraftLayersAreIgnoredOnlyWhenDeclared) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    tensors->push_back({"model.layers.1.eh_proj.weight", {8, 16}});
    tensors->push_back({"model.layers.1.mlp.experts.0.down_proj.weight", {8, 4}});
  });
  ExpectError(Open(files), "INVALID", "model.layers.1.eh_proj.weight");
  EditConfig(&files, [](json* config) { (*config)["num_nextn_predict_layers"] = 1; });
  ::testing::internal::CaptureStderr();
  const Opened opened = Open(files);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_EQ(opened.weights->ignored_tensors(), 2);
  EXPECT_EQ(opened.weights->total_bytes(), 3008);
  EXPECT_NE(log.find("ignored 2 tensors"), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  // One more than declared is not.
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) { tensors->push_back({"model.layers.2.x.weight", {8}}); });
  ExpectError(Open(files), "INVALID", "model.layers.2.x.weight");
}

// By the suffixes of their tensors.
TEST(WeightStoreTest, QuantizedCheckpointsAreUnsupportedAndNamed) {
  for (const char* name : {"qweight", "weight_packed", "weight_scale", "weight_scale_inv"}) {
    for (const char* glue : {".", "_"}) {
      FileMap files = SoundFiles();
      const std::string tensor = Cat("model.layers.0.mlp.experts.0.gate_proj", glue, name);
      EditTensors(&files, [&](std::vector<TinyTensor>* tensors) {
        Take(tensors, "model.layers.0.mlp.experts.0.gate_proj.weight");
        tensors->push_back({tensor, {4, 8}, "I32"});
      });
      ExpectError(Open(files), "UNSUPPORTED", tensor);
    }
  }
  EXPECT_FALSE(IsQuantizedName("model.layers.0.mlp.experts.0.gate_proj.weight"));
  EXPECT_FALSE(IsQuantizedName("model.layers.0.router.per_expert_scale"));
  EXPECT_FALSE(IsQuantizedName("scales"));
}

TEST(WeightStoreTest, NonFloatWeightsAreUnsupported) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    for (TinyTensor& tensor : *tensors) {
      if (!tensor.name.ends_with("up_proj.weight")) continue;
      tensor.dtype = "F8_E4M3";
      tensor.data = std::string(32, '\1');
    }
  });
  ExpectError(Open(files), "UNSUPPORTED", "experts.0.up_proj.weight");
}

TEST(WeightStoreTest, ExpertDTypeOfMixedFiles) {
  const auto open = [](const std::map<std::string, std::string>& dtypes) {
    FileMap files = SoundFiles();
    EditTensors(&files, [&](std::vector<TinyTensor>* tensors) {
      for (TinyTensor& tensor : *tensors) {
        for (const auto& [part, dtype] : dtypes) {
          if (tensor.name.find(part) == std::string::npos) continue;
          tensor.dtype = dtype;
          size_t count = 1;
          for (const int64_t dim : tensor.shape) count *= static_cast<size_t>(dim);
          tensor.data = Bf16(count);
        }
      }
    });
    const Opened opened = Open(files);
    EXPECT_TRUE(opened.status.ok()) << opened.status;
    return opened.weights->expert_dtype();
  };
  EXPECT_EQ(open({}), DType::kF32);
  EXPECT_EQ(open({{"mlp.experts", "BF16"}}), DType::kBF16);
  EXPECT_EQ(open({{"mlp.experts", "F16"}}), DType::kF16);
  EXPECT_EQ(open({{"experts.0", "BF16"}}), DType::kF32);
  EXPECT_EQ(open({{"experts.0", "BF16"}, {"experts.1", "F16"}}), DType::kF32);
  EXPECT_EQ(open({{"self_attn", "BF16"}}), DType::kF32);  // the experts decide
}

TEST(WeightStoreTest, StoredFrequenciesAreIgnored) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    tensors->push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
  });
  const Opened opened = Open(files);
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_EQ(opened.weights->ignored_tensors(), 1);
}

// Shared experts of which there are none are saved with a width of zero.
TEST(WeightStoreTest, TensorsWithoutElementsAreIgnored) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    tensors->push_back({"model.layers.0.mlp.shared_experts.up_proj.weight", {0, 8}});
    tensors->push_back({"model.layers.0.mlp.shared_experts.down_proj.weight", {8, 0}});
  });
  const Opened opened = Open(files);
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_EQ(opened.weights->ignored_tensors(), 2);
}

// Expert 1's up projection in E4M3 with a scale a row: code 0x30 + row stands for (1 + row / 8) / 2.
FileMap WithFloat8Expert(const std::string& scale_name) {
  FileMap files = SoundFiles();
  EditTensors(&files, [&](std::vector<TinyTensor>* tensors) {
    const std::string name = "model.layers.0.mlp.experts.1.up_proj.weight";
    TinyTensor up = Take(tensors, name);
    up.dtype = "F8_E4M3";
    for (int64_t r = 0; r < up.shape[0]; ++r) up.data.append(up.shape[1], static_cast<char>(0x30 + r));
    tensors->push_back(up);
    tensors->push_back({name + scale_name, {up.shape[0], 1}, "F32", Floats(std::vector<float>(up.shape[0], 4.0f))});
    tensors->push_back({"model.layers.0.mlp.experts.1.up_proj.input_scale", {}, "F32", Floats({0.5f})});
  });
  EditConfig(&files, [](json* config) { (*config)["quantization_config"] = {{"quant_method", "fp8"}}; });
  return files;
}

TEST(WeightStoreTest, QuantisedWeightsAreWidened) {
  const Opened opened = Open(WithFloat8Expert("_scale_inv"));
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  const std::string name = "layers.0.moe.experts.1.up";
  EXPECT_EQ(opened.weights->quantized_weights(), 1);
  EXPECT_FALSE(opened.weights->QuantizedBytes(name).empty());
  EXPECT_TRUE(opened.weights->QuantizedBytes("layers.0.moe.experts.1.gate").empty());
  for (int round = 0; round < 2; ++round) {
    const WeightSource up = opened.weights->Get(name);
    EXPECT_EQ(up.dtype, DType::kF32);
    const std::vector<float> values = Values(up);
    for (int64_t r = 0; r < up.rows; ++r) {
      for (int64_t c = 0; c < up.cols; ++c)
        EXPECT_EQ(values[r * up.cols + c], 2.0f * (1.0f + static_cast<float>(r) / 8));
    }
    opened.weights->Release(name);
  }
}

TEST(WeightStoreTest, QuantisedWeightsNeedTheirScalesAndTheConfig) {
  ExpectError(Open(WithFloat8Expert("_scale_of_mine")), "UNSUPPORTED", "quantised in a format that is not supported");
  FileMap files = WithFloat8Expert("_scale_inv");
  EditConfig(&files, [](json* config) { config->erase("quantization_config"); });
  ExpectError(Open(files), "UNSUPPORTED", "quantised in a format that is not supported");
}

TEST(WeightStoreTest, BiasesOfZerosBesideQuantisedWeights) {
  for (const float value : {0.0f, 1.0f}) {
    FileMap files = WithFloat8Expert("_scale_inv");
    std::string& stored = files["model.safetensors"];
    uint64_t size = 0;
    std::memcpy(&size, stored.data(), sizeof(size));
    moe::testing::TinyFile file;
    file.header = nlohmann::ordered_json::parse(stored.substr(sizeof(size), size));
    file.data = stored.substr(sizeof(size) + size);
    const uint64_t end = file.data.size();
    file.header["model.layers.0.mlp.experts.1.up_proj.bias"] = {
        {"dtype", "F32"}, {"shape", {2}}, {"data_offsets", {end, end + 8}}};
    file.data += Floats({value, value});
    stored = moe::testing::Pack(file);
    const Opened opened = Open(files);
    if (value == 0) {
      EXPECT_TRUE(opened.status.ok()) << opened.status;
    } else {
      ExpectError(opened, "INVALID", "up_proj.bias");
    }
  }
}

TEST(WeightStoreTest, ManyUnusedTensorsAreCountedNotListed) {
  FileMap files = SoundFiles();
  EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    for (int i = 0; i < 50; ++i) tensors->push_back({Cat("extra.", i), {1}});
  });
  const Opened opened = Open(files);
  ExpectError(opened, "INVALID", "50 tensors");
  EXPECT_LT(opened.status.message().size(), 300u);
}

}  // namespace
}  // namespace moe
