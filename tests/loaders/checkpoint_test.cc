#include "loaders/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::FileMap;

// Records what is looked up or opened.
class Watched : public ModelFiles {
 public:
  explicit Watched(std::unique_ptr<ModelFiles> files) : files_(std::move(files)) {}
  bool Has(const std::string& name) const override {
    touched.push_back(name);
    return files_->Has(name);
  }
  StatusOr<std::shared_ptr<const FileView>> Open(const std::string& name) const override {
    touched.push_back(name);
    return files_->Open(name);
  }
  std::string description() const override { return "watched"; }
  mutable std::vector<std::string> touched;

 private:
  std::unique_ptr<ModelFiles> files_;
};

TEST(CheckpointTest, ShardsHoldTheSameTensors) {
  FileMap files = moe::testing::SoundFiles();
  const auto single = Checkpoint::Open(*moe::testing::InMemory(files));
  files["model.safetensors.index.json"] = moe::testing::Shard(&files).dump();
  const auto sharded = Checkpoint::Open(*moe::testing::InMemory(files));
  ASSERT_TRUE(single.ok() && sharded.ok());
  ASSERT_EQ((*single)->tensors().size(), (*sharded)->tensors().size());
  for (const Checkpoint::Tensor& tensor : (*single)->tensors()) {
    const int64_t other = (*sharded)->Find(tensor.info->name);
    ASSERT_GE(other, 0) << tensor.info->name;
    const std::span<const std::byte> a = tensor.bytes();
    const std::span<const std::byte> b = (*sharded)->tensors()[static_cast<size_t>(other)].bytes();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << tensor.info->name;
  }
  EXPECT_EQ((*single)->Find("no such tensor"), -1);
}

// A weight_map that leaves the directory.
TEST(CheckpointTest, EscapingPathsAreRefusedBeforeAnyFileIsTouched) {
  for (const std::string& path : {std::string("../other/model.safetensors"), std::string("/abs/elsewhere.safetensors"),
                                  std::string("sub/../../x.safetensors"), std::string("a\\..\\b.safetensors"),
                                  std::string(".."), std::string("model.safetensors\0.txt", 22), std::string()}) {
    FileMap files = moe::testing::SoundFiles();
    nlohmann::json index = moe::testing::Shard(&files);
    index["weight_map"]["lm_head.weight"] = path;
    files["model.safetensors.index.json"] = index.dump();
    const Watched watched(moe::testing::InMemory(files));
    const Status status = Checkpoint::Open(watched).status();
    EXPECT_EQ(ErrorKind(status), "INVALID") << status;
    EXPECT_EQ(std::string(status.message()).find("no such"), std::string::npos) << status;
    for (const std::string& name : watched.touched) EXPECT_TRUE(name.starts_with("model.safetensors")) << name;
    EXPECT_EQ(std::count(watched.touched.begin(), watched.touched.end(), path), 0) << path;
  }
}

// The absent shard is found before any weight is read.
TEST(CheckpointTest, AbsentShardIsCorruptAndNamed) {
  FileMap files = moe::testing::SoundFiles();
  files["model.safetensors.index.json"] = moe::testing::Shard(&files).dump();
  files.erase("model-00002-of-00002.safetensors");
  const Status status = Checkpoint::Open(*moe::testing::InMemory(files)).status();
  EXPECT_EQ(ErrorKind(status), "CORRUPT");
  EXPECT_NE(std::string(status.message()).find("model-00002-of-00002.safetensors"), std::string::npos);
}

TEST(CheckpointTest, PiecesForTensorParallelismAreRefused) {
  FileMap files = moe::testing::SoundFiles();
  const std::string weights = files.at("model.safetensors");
  files.erase("model.safetensors");
  files["pytorch_model-00000-TP-common.safetensors"] = weights;
  const Status loose = Checkpoint::Open(*moe::testing::InMemory(files)).status();
  EXPECT_EQ(ErrorKind(loose), "UNSUPPORTED") << loose;
  EXPECT_NE(std::string(loose.message()).find("tensor parallelism"), std::string::npos) << loose;

  files.erase("pytorch_model-00000-TP-common.safetensors");
  nlohmann::json index = {{"weight_map", {{"lm_head.weight", "a-TP-000.safetensors"}}}};
  const auto whole = Checkpoint::Open(*moe::testing::InMemory({{"model.safetensors", weights}}));
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const Checkpoint::Tensor& tensor : (*whole)->tensors()) {
    index["weight_map"][tensor.info->name] = "a-TP-000.safetensors";
  }
  index["weight_map"]["lm_head.weight"] = "a-TP-001.safetensors";
  for (const char* shard : {"a-TP-000.safetensors", "a-TP-001.safetensors"}) files[shard] = weights;
  files["model.safetensors.index.json"] = index.dump();
  const Status listed = Checkpoint::Open(*moe::testing::InMemory(files)).status();
  EXPECT_EQ(ErrorKind(listed), "INVALID") << listed;
  EXPECT_NE(std::string(listed.message()).find("tensor parallelism"), std::string::npos) << listed;
}

TEST(CheckpointTest, SingleFileWinsOverAnIndex) {
  FileMap files = moe::testing::SoundFiles();
  files["model.safetensors.index.json"] = "not even JSON";
  EXPECT_TRUE(Checkpoint::Open(*moe::testing::InMemory(files)).ok());
}

}  // namespace
}  // namespace moe
