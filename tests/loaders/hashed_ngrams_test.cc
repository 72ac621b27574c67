// The buffers of Qwen4-Exp's n-gram embeddings: their numbers follow from config.json, and a file whose own differ was
// hashed otherwise.
#include <gtest/gtest.h>

#include <cstring>

#include "loaders/architectures.h"
#include "loaders/weight_store.h"
#include "tests/loaders/family_fixtures.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using nlohmann::json;

class HashedNgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string directory = std::string(MOE_TEST_DATA_DIR) + "/families/qwen4_exp_ngrams/";
    config_ = json::parse(moe::testing::Content(directory + "config.json"));
    const std::string file = moe::testing::Content(directory + "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    header_ = nlohmann::ordered_json::parse(file.substr(8, length));
    data_ = file.substr(8 + length);
  }

  Status Open() const {
    const auto files = moe::testing::InMemory({{"model.safetensors", moe::testing::Pack(header_.dump(), data_)}});
    MOE_ASSIGN_OR_RETURN(ModelDescription model, ReadModelConfig(config_.dump()));
    return OpenWeightStore(*files, &model.spec, model.rules).status();
  }

  json config_;
  nlohmann::ordered_json header_;
  std::string data_;
};

TEST_F(HashedNgramsTest, StoredNumbersMustBeTheConfigs) {
  ASSERT_TRUE(Open().ok()) << Open();
  for (const std::string layer : {"0", "2"}) {
    for (const char* buffer : {"layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"}) {
      const std::string name = "model.layers." + layer + ".ple.ple_embedding." + buffer;
      const uint64_t end = header_[name]["data_offsets"][1];
      data_[end - 8] ^= 2;  // the last number's lowest byte
      const Status status = Open();
      data_[end - 8] ^= 2;
      EXPECT_EQ(ErrorKind(status), "INVALID") << name;
      EXPECT_NE(std::string(status.message()).find("model.safetensors: tensor " + name + " has "), std::string::npos)
          << status;
      header_[name]["dtype"] = "F64";
      EXPECT_EQ(ErrorKind(Open()), "INVALID") << name;
      header_[name]["dtype"] = "I64";
    }
  }
}

TEST_F(HashedNgramsTest, AnotherSeedNeedsOtherNumbers) {
  config_["seed"] = 1235;
  const Status status = Open();
  EXPECT_EQ(ErrorKind(status), "INVALID");
  EXPECT_NE(std::string(status.message()).find("layer_multipliers"), std::string::npos) << status;
  EXPECT_NE(std::string(status.message()).find("seed"), std::string::npos) << status;
}

}  // namespace
}  // namespace moe
