#include "engine/device/packed_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace moe {
namespace {

class PackedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/packed-cache-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<PackedCache> Open(const std::string& identity = "model a") {
    StatusOr<std::unique_ptr<PackedCache>> cache = PackedCache::Open(directory_, identity);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  // Packs two buffers filled with 1 and 2.
  void Fill(const std::string& identity = "model a") {
    std::unique_ptr<PackedCache> cache = Open(identity);
    ASSERT_FALSE(cache->hit());
    for (int i = 1; i <= 2; ++i) {
      const PackedCache::Buffer buffer = cache->Next(5000);
      ASSERT_NE(buffer.data, nullptr);
      EXPECT_FALSE(buffer.packed);
      EXPECT_TRUE(std::all_of(buffer.data, buffer.data + 5000, [](std::byte b) { return b == std::byte{0}; }));
      std::memset(buffer.data, i, 5000);
    }
    cache->Keep();
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) names.push_back(entry.path());
    return names;
  }

  std::string directory_;
};

TEST_F(PackedCacheTest, TheNextStartFindsWhatWasPacked) {
  Fill();
  ASSERT_EQ(Files().size(), 1u);
  std::unique_ptr<PackedCache> cache = Open();
  ASSERT_TRUE(cache->hit());
  for (int i = 1; i <= 2; ++i) {
    const PackedCache::Buffer buffer = cache->Next(5000);
    ASSERT_NE(buffer.data, nullptr);
    EXPECT_TRUE(buffer.packed);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % 4096, 0u);
    EXPECT_TRUE(std::all_of(buffer.data, buffer.data + 5000, [&](std::byte b) { return b == std::byte(i); }));
  }
  EXPECT_EQ(cache->Next(5000).data, nullptr) << "more than there were";
}

TEST_F(PackedCacheTest, OtherWeightsHaveAnotherFile) {
  Fill();
  EXPECT_FALSE(Open("model b")->hit());
}

TEST_F(PackedCacheTest, BuffersOfAnotherSizeAreNotUsed) {
  Fill();
  std::unique_ptr<PackedCache> cache = Open();
  EXPECT_EQ(cache->Next(4999).data, nullptr);
  EXPECT_EQ(cache->Next(5000).data, nullptr) << "not after a mistake either";
}

TEST_F(PackedCacheTest, AnUnfinishedStartLeavesNothing) {
  {
    std::unique_ptr<PackedCache> cache = Open();
    cache->Next(5000);  // and no Keep
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(PackedCacheTest, DamagedFilesAreReplaced) {
  Fill();
  const std::string path = Files().at(0);
  const auto size = std::filesystem::file_size(path);
  // Every kind of cut: in the tail, in the sizes, in the data; and a wrong magic.
  for (const uintmax_t left : {size - 1, size - 40, uintmax_t{8192}, uintmax_t{10}, uintmax_t{0}}) {
    std::filesystem::resize_file(path, left);
    EXPECT_FALSE(Open()->hit()) << left;
    Fill();
    ASSERT_TRUE(Open()->hit()) << left;
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_FALSE(Open()->hit());
}

TEST_F(PackedCacheTest, ADirectoryThatCannotBeIsAnError) {
  std::ofstream(directory_ + "/file") << "x";
  const auto cache = PackedCache::Open(directory_ + "/file", "model");
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.status().message().find("is not a directory"), std::string::npos) << cache.status();
}

TEST_F(PackedCacheTest, IdentityFollowsTheFiles) {
  const std::string model = directory_ + "/model";
  std::filesystem::create_directory(model);
  EXPECT_EQ(CheckpointIdentity(model), "");
  std::ofstream(model + "/model.safetensors") << "x";
  std::ofstream(model + "/notes.txt") << "x";
  const std::string first = CheckpointIdentity(model);
  EXPECT_NE(first, "");
  std::ofstream(model + "/notes.txt") << "longer";
  EXPECT_EQ(CheckpointIdentity(model), first);
  std::ofstream(model + "/model.safetensors") << "xy";
  EXPECT_NE(CheckpointIdentity(model), first);
  EXPECT_EQ(CheckpointIdentity("embedded:demo"), "");
}

}  // namespace
}  // namespace moe
