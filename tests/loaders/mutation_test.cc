// Every truncation and many byte changes of the tiny checkpoint's files: any answer is right but a crash.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "loaders/architectures.h"
#include "loaders/weight_store.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::FileMap;

// Loads and reads every weight, so that a wrong view would show.
Status Load(const FileMap& content) {
  const std::unique_ptr<ModelFiles> files = moe::testing::InMemory(content);
  MOE_ASSIGN_OR_RETURN(const auto config, files->Open("config.json"));
  MOE_ASSIGN_OR_RETURN(ModelDescription model, ReadModelConfig(config->text()));
  MOE_ASSIGN_OR_RETURN(const auto weights, OpenWeightStore(*files, &model.spec, model.rules));
  float sum = 0;
  for (const TensorNeed& need : RequiredTensors(model.spec)) {
    const WeightSource source = weights->Get(need.name);
    for (int64_t r = 0; r < source.rows; ++r) {
      for (int64_t c = 0; c < source.cols; ++c) {
        sum +=
            LoadFloat(source.dtype, source.data + static_cast<size_t>(r * source.row_stride + c * source.col_stride) *
                                                      DTypeSize(source.dtype));
      }
    }
  }
  return sum == 12345.0f ? absl::InternalError("never") : absl::OkStatus();
}

FileMap ShardedFiles() {
  FileMap files = moe::testing::SoundFiles();
  files["model.safetensors.index.json"] = moe::testing::Shard(&files).dump();
  return files;
}

// AddressSanitizer keeps freed memory back, so its peaks say nothing about ours.
#ifdef __SANITIZE_ADDRESS__
constexpr long kMaxExtraKib = 1L << 40;
#else
constexpr long kMaxExtraKib = 64L * 1024;
#endif

long PeakKib() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void ExpectKnownKind(const Status& status, const std::string& where) {
  if (status.ok()) return;
  const std::string kind = ErrorKind(status);
  EXPECT_TRUE(kind == "INVALID" || kind == "UNSUPPORTED" || kind == "CORRUPT") << where << ": " << status;
  EXPECT_FALSE(std::string(status.message()).empty());
}

void Truncate(const FileMap& sound, const std::string& name, size_t longest) {
  const std::string& content = sound.at(name);
  FileMap files = sound;
  for (size_t length = 0; length < std::min(content.size(), longest); ++length) {
    files[name] = content.substr(0, length);
    const Status status = Load(files);
    EXPECT_FALSE(status.ok()) << name << " cut to " << length;
    ExpectKnownKind(status, name);
  }
}

void Flip(const FileMap& sound, const std::string& name, size_t bytes) {
  FileMap files = sound;
  std::string& content = files[name];
  for (size_t i = 0; i < std::min(content.size(), bytes); ++i) {
    const char old = content[i];
    for (const char changed : {static_cast<char>(old ^ 1), static_cast<char>(old ^ 0x80), '9'}) {
      content[i] = changed;
      ExpectKnownKind(Load(files), name);
    }
    content[i] = old;
  }
}

constexpr size_t kAll = size_t{1} << 30;

TEST(MutationTest, SafetensorsTruncated) {
  Truncate(moe::testing::SoundFiles(), "model.safetensors", kAll);
}
TEST(MutationTest, ConfigTruncated) {
  // The last byte is the closing brace.
  Truncate(moe::testing::SoundFiles(), "config.json", kAll);
}
TEST(MutationTest, IndexTruncated) {
  Truncate(ShardedFiles(), "model.safetensors.index.json", kAll);
}

TEST(MutationTest, HeaderBytesChanged) {
  const long before = PeakKib();
  const FileMap files = moe::testing::SoundFiles();
  const size_t header = moe::testing::LayOut(moe::testing::TinyTensors()).header.dump().size();
  Flip(files, "model.safetensors", 8 + header);
  EXPECT_LT(PeakKib() - before, kMaxExtraKib);
}
TEST(MutationTest, ConfigBytesChanged) {
  const long before = PeakKib();
  Flip(moe::testing::SoundFiles(), "config.json", kAll);
  EXPECT_LT(PeakKib() - before, kMaxExtraKib);
}
TEST(MutationTest, IndexBytesChanged) {
  Flip(ShardedFiles(), "model.safetensors.index.json", kAll);
}

// The largest values that the ranges let through must be refused before they cost memory or time.
TEST(MutationTest, LargestAllowedConfigIsCheap) {
  const long before = PeakKib();
  FileMap files = moe::testing::SoundFiles();
  moe::testing::EditConfig(&files, [](nlohmann::json* config) {
    (*config)["num_hidden_layers"] = limits::kMaxLayers;
    (*config)["num_experts"] = limits::kMaxExperts;
    (*config)["head_dim"] = limits::kMaxHeadDim;
  });
  EXPECT_EQ(ErrorKind(Load(files)), "INVALID");
  moe::testing::EditConfig(&files, [](nlohmann::json* config) { (*config)["num_experts"] = 128; });
  EXPECT_EQ(ErrorKind(Load(files)), "INVALID");
  EXPECT_LT(PeakKib() - before, kMaxExtraKib);
}

}  // namespace
}  // namespace moe
