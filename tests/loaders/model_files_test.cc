#include "loaders/model_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moe {
namespace {

class ModelDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "moe_files_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    std::ofstream(path_ / "file") << "content";
    std::ofstream(path_ / "empty");
    std::filesystem::create_symlink("file", path_ / "link");
    std::filesystem::create_symlink("nowhere", path_ / "dangling");
    std::filesystem::create_symlink("/dev/zero", path_ / "device");
    std::filesystem::create_directory(path_ / "folder");
    ASSERT_EQ(::mkfifo((path_ / "fifo").c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  std::unique_ptr<ModelFiles> Open() {
    auto files = OpenModelDirectory(path_.string());
    EXPECT_TRUE(files.ok()) << files.status();
    return std::move(files).value();
  }
  std::filesystem::path path_;
};

TEST_F(ModelDirectoryTest, ReadsFilesAndLinksToFiles) {
  const auto files = Open();
  for (const char* name : {"file", "link"}) {
    const auto view = files->Open(name);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ((*view)->text(), "content");
    (*view)->Release((*view)->bytes());
    EXPECT_EQ((*view)->text(), "content");
  }
  const auto empty = files->Open("empty");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE((*empty)->bytes().empty());
}

TEST_F(ModelDirectoryTest, RefusesWhatIsNotARegularFile) {
  const auto files = Open();
  for (const char* name : {"fifo", "device", "folder"}) {  // the FIFO must not block
    const Status status = files->Open(name).status();
    EXPECT_EQ(ErrorKind(status), "INVALID") << status;
    EXPECT_NE(std::string(status.message()).find(name), std::string::npos) << status;
  }
}

TEST_F(ModelDirectoryTest, AbsentIsCorruptAlsoBehindALink) {
  const auto files = Open();
  EXPECT_FALSE(files->Has("absent"));
  EXPECT_TRUE(files->Has("dangling"));
  for (const char* name : {"absent", "dangling"}) EXPECT_EQ(ErrorKind(files->Open(name).status()), "CORRUPT");
}

TEST_F(ModelDirectoryTest, NamesCannotLeaveTheDirectory) {
  const auto files = Open();
  for (const std::string& name :
       {std::string("../x"), std::string("/etc/passwd"), std::string("folder/x"), std::string(".."), std::string("."),
        std::string(), std::string("a\\b"), std::string("file\0x", 6), std::string(300, 'a')}) {
    EXPECT_FALSE(IsPlainFileName(name));
    EXPECT_FALSE(files->Has(name));
    EXPECT_EQ(ErrorKind(files->Open(name).status()), "INVALID");
  }
}

TEST_F(ModelDirectoryTest, MapsOutliveTheDirectoryObject) {
  std::shared_ptr<const FileView> view = *Open()->Open("file");
  EXPECT_EQ(view->text(), "content");
}

TEST(OpenModelDirectoryTest, NeedsADirectory) {
  for (const char* path : {"", "/nonexistent/model", "/dev/null", "org/model"}) {
    EXPECT_EQ(ErrorKind(OpenModelDirectory(path).status()), "INVALID") << path;
  }
}

}  // namespace
}  // namespace moe
