#include "loaders/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "loaders/safetensors_writer.h"

namespace moe {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class SafetensorsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "moe_st_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  size_t FileCount() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }
  std::string folder_;
};

TEST_F(SafetensorsFileTest, RoundTripKeepsEveryByte) {
  const std::vector<TensorToWrite> tensors = {{"a", DType::kF32, {2, 3}},
                                              {"weird \"name\" é", DType::kBF16, {4, 1}},
                                              {"scalar", DType::kI64, {}},
                                              {"nothing", DType::kF16, {0, 5}},
                                              {"bytes", DType::kU8, {7}}};
  std::string data(24 + 8 + 8 + 0 + 7, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37);
  auto writer = SafetensorsWriter::Create(folder_ + "/x.safetensors", tensors, {{"format", "pt"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  // In odd pieces.
  for (size_t i = 0; i < data.size(); i += 5) {
    ASSERT_TRUE((*writer)->Append(Bytes(data.substr(i, 5))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/x.safetensors"));
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(FileCount(), 1u);

  const auto directory = OpenModelDirectory(folder_);
  const auto file = SafetensorsFile::Open(**directory, "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), tensors.size());
  std::string read;
  for (const TensorToWrite& wanted : tensors) {
    const auto& found = (*file)->tensors();
    const auto it = std::find_if(found.begin(), found.end(),
                                 [&](const StoredTensor& tensor) { return tensor.name == wanted.name; });
    ASSERT_NE(it, found.end()) << wanted.name;
    EXPECT_EQ(it->dtype, wanted.dtype);
    EXPECT_EQ(it->shape, wanted.shape);
    const std::span<const std::byte> bytes = (*file)->bytes(*it);
    read.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(read, data);
}

TEST_F(SafetensorsFileTest, AbandonedWriterLeavesNothing) {
  {
    auto writer = SafetensorsWriter::Create(folder_ + "/x.safetensors", {{"a", DType::kF32, {2}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->Append(Bytes("1234")).ok());
    EXPECT_EQ(ErrorKind((*writer)->Commit()), "INVALID");  // 4 of 8 bytes
    EXPECT_EQ(ErrorKind((*writer)->Append(Bytes("12345"))), "INVALID");
    EXPECT_EQ(FileCount(), 1u);
  }
  EXPECT_EQ(FileCount(), 0u);
}

TEST_F(SafetensorsFileTest, WriterRefusesBadTensors) {
  EXPECT_EQ(ErrorKind(SafetensorsHeader({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}, {}).status()), "INVALID");
  EXPECT_EQ(ErrorKind(SafetensorsHeader({{"a", DType::kF32, {-1}}}, {}).status()), "INVALID");
  EXPECT_FALSE(SafetensorsWriter::Create(folder_ + "/no/such/folder", {}).ok());
}

TEST(SafetensorsHeaderTest, DTypeNamesRoundTrip) {
  for (const char* name : {"F32", "BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F64", "I8", "U8", "I16", "U16",
                           "I32", "U32", "I64", "U64", "BOOL"}) {
    DType dtype;
    ASSERT_TRUE(DTypeFromSafetensors(name, &dtype)) << name;
    EXPECT_STREQ(SafetensorsDTypeName(dtype), name);
  }
}

TEST(SafetensorsHeaderTest, EmptyHeaderAndPaddingAreFine) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 0, "f").ok());
  EXPECT_TRUE(ParseSafetensorsHeader("{\"__metadata__\":{\"a\":\"b\"}}     ", 0, "f").ok());
  EXPECT_EQ(ErrorKind(ParseSafetensorsHeader("{\"__metadata__\":{\"a\":1}}", 0, "f").status()), "INVALID");
}

}  // namespace
}  // namespace moe
