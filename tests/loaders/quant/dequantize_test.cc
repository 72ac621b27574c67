// Quantised weights of real checkpoint formats against what the formats' own decoders make of them
// (tests/data/quant/README.md), bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "loaders/model_files.h"
#include "loaders/quant/float8.h"
#include "loaders/quant/quantized_weight.h"

namespace moe {
namespace {

const char* kFolder = MOE_TEST_DATA_DIR "/quant";

nlohmann::json Golden() {
  std::ifstream in(std::string(kFolder) + "/golden.json");
  return nlohmann::json::parse(in);
}

std::string Fnv1a(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    uint8_t bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// All matrices of the weight, each [rows, cols].
std::vector<float> Values(const QuantizedWeight& w) {
  const int64_t size = w.rows * w.cols;
  std::vector<float> all(static_cast<size_t>(w.count * size));
  std::vector<float> one(static_cast<size_t>(size));
  for (int64_t m = 0; m < w.count; ++m) {
    Dequantize(w, m, one.data());
    for (int64_t n = 0; n < w.rows; ++n) {
      for (int64_t k = 0; k < w.cols; ++k) {
        all[m * size + n * w.cols + k] = w.transposed ? one[k * w.rows + n] : one[n * w.cols + k];
      }
    }
  }
  return all;
}

struct Sample {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<SafetensorsFile> file;
  std::vector<QuantPart> parts;
  QuantizationConfig config;
};

Sample Open(const std::string& name, const nlohmann::json& quantization) {
  Sample sample;
  auto files = OpenModelDirectory(kFolder);
  EXPECT_TRUE(files.ok()) << files.status();
  sample.files = *std::move(files);
  auto file = SafetensorsFile::Open(*sample.files, name + ".safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  sample.file = *std::move(file);
  for (const StoredTensor& tensor : sample.file->tensors()) sample.parts.push_back({&tensor, sample.file.get()});
  auto config = ReadQuantizationConfig({{"quantization_config", quantization}}, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  sample.config = *config;
  return sample;
}

TEST(DequantizeTest, EveryFormatGivesItsGoldenValues) {
  int weights = 0;
  const nlohmann::json document = Golden();
  for (const auto& [name, golden] : document.items()) {
    SCOPED_TRACE(name);
    const Sample sample = Open(name, golden["quantization_config"]);
    std::vector<size_t> used;
    const auto found = FindQuantizedWeights(sample.parts, sample.config, &used);
    ASSERT_TRUE(found.ok()) << found.status();
    size_t plain = sample.parts.size() - used.size();  // biases
    EXPECT_EQ(found->size() + plain, golden["weights"].size());
    for (const QuantizedWeight& w : *found) {
      SCOPED_TRACE(w.name);
      ASSERT_TRUE(golden["weights"].contains(w.name));
      const nlohmann::json& expected = golden["weights"][w.name];
      std::vector<int64_t> shape = w.shape;
      if (w.transposed) std::swap(shape[1], shape[2]);
      EXPECT_EQ(shape, expected["shape"].get<std::vector<int64_t>>());
      const std::vector<float> values = Values(w);
      const auto every = expected["every"].get<size_t>();
      for (size_t i = 0; i < expected["samples"].size(); ++i) {
        EXPECT_EQ(values[i * every], expected["samples"][i].get<float>()) << "element " << i * every;
      }
      EXPECT_EQ(Fnv1a(values), expected["fnv1a"]);
      ++weights;
    }
  }
  EXPECT_EQ(weights, 26);
}

// Whatever shape a part has, it fits or is refused: nothing is read out of bounds (under the sanitizers).
TEST(DequantizeTest, PartsThatDoNotFitAreRefused) {
  int refused = 0;
  const nlohmann::json document = Golden();
  for (const auto& [name, golden] : document.items()) {
    const Sample sample = Open(name, golden["quantization_config"]);
    for (size_t victim = 0; victim < sample.parts.size(); ++victim) {
      const StoredTensor& sound = *sample.parts[victim].info;
      for (size_t side = 0; side < sound.shape.size(); ++side) {
        for (const int64_t change : {-1, 1, -2}) {
          StoredTensor bad = sound;
          bad.shape[side] += change;
          if (bad.shape[side] < 0 || change > 0) bad.shape[side] = std::max<int64_t>(bad.shape[side], 0);
          // Larger shapes would lie beyond the file, which its header's own checks refuse; they are only looked at.
          std::vector<QuantPart> parts = sample.parts;
          parts[victim].info = &bad;
          std::vector<size_t> used;
          const auto found = FindQuantizedWeights(parts, sample.config, &used);
          if (!found.ok()) {
            ++refused;
            EXPECT_NE(found.status().message().find(".safetensors: tensor "), std::string::npos) << found.status();
          } else if (change < 0) {
            for (const QuantizedWeight& w : *found) (void)Values(w);
          }
        }
      }
      std::vector<QuantPart> parts = sample.parts;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(victim));
      std::vector<size_t> used;
      (void)FindQuantizedWeights(parts, sample.config, &used);
    }
  }
  EXPECT_GT(refused, 150);
}

TEST(DequantizeTest, AGroupIndexOutOfRangeGivesNoNumber) {
  const Sample sample = Open("gptq_v1_w4g32_desc_act", Golden()["gptq_v1_w4g32_desc_act"]["quantization_config"]);
  std::vector<size_t> used;
  auto found = FindQuantizedWeights(sample.parts, sample.config, &used);
  ASSERT_TRUE(found.ok());
  QuantizedWeight w = (*found)[0];
  w.groups = 1;  // the file's indices go further
  bool nan = false;
  for (const float value : Values(w)) nan |= std::isnan(value);
  EXPECT_TRUE(nan);
}

TEST(DequantizeTest, ConfigsThatCannotBeServedAreRefusedByName) {
  const auto read = [](const char* text) {
    return ReadQuantizationConfig({{"quantization_config", nlohmann::json::parse(text)}}, "config.json").status();
  };
  const struct {
    const char* text;
    const char* field;
  } cases[] = {
      {R"({"quant_method": "gptq", "bits": 3})", "quantization_config.bits: is 3"},
      {R"({"quant_method": "gptq", "bits": "four"})", "quantization_config.bits: is \"four\""},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": -2})", "group_size: is -2"},
      {R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", "checkpoint_format: is \"marlin\""},
      {R"({"quant_method": "awq", "bits": 4, "version": "gemv"})", "version: is \"gemv\""},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "fmt: is \"e5m2\""},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "weight_block_size: is [128,0]"},
      {R"({"quant_method": "compressed-tensors", "format": "marlin-24"})", "format: is \"marlin-24\""},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8"})", "quant_algo: is \"W4A8\""},
      {R"({"quant_method": 4})", "quant_method: is a number"},
  };
  for (const auto& c : cases) {
    EXPECT_NE(read(c.text).message().find(c.field), std::string::npos) << read(c.text);
  }
}

TEST(Float8Test, E4m3) {
  EXPECT_EQ(E4m3ToFloat(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(E4m3ToFloat(0x80)));
  EXPECT_EQ(E4m3ToFloat(0x01), 0.001953125f);  // the least above 0: 2^-9
  EXPECT_EQ(E4m3ToFloat(0x08), 0.015625f);     // the least normal one: 2^-6
  EXPECT_EQ(E4m3ToFloat(0x38), 1.0f);
  EXPECT_EQ(E4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(E4m3ToFloat(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(E4m3ToFloat(0x7f)));
  EXPECT_EQ(E8m0ToFloat(127), 1.0f);
  EXPECT_EQ(E8m0ToFloat(0), std::ldexp(1.0f, -127));
  EXPECT_TRUE(std::isnan(E8m0ToFloat(255)));
}

}  // namespace
}  // namespace moe
