#include <gtest/gtest.h>

#include <cstring>

#include "loaders/model_files.h"

namespace moe {
namespace {

TEST(EmbeddedDemoTest, HoldsTheFilesOfTheSourceTree) {
  const auto embedded = OpenEmbeddedDemo();
  const auto directory = OpenModelDirectory(std::string(MOE_SOURCE_DIR "/loaders/demo/") + kEmbeddedDemoName);
  ASSERT_TRUE(directory.ok());
  EXPECT_EQ(embedded->description(), "embedded:shakespeare-nemotronh");
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}) {
    EXPECT_TRUE(embedded->Has(name));
    const auto a = embedded->Open(name);
    const auto b = (*directory)->Open(name);
    ASSERT_TRUE(a.ok() && b.ok()) << name;
    EXPECT_EQ((*a)->text(), (*b)->text()) << name;
    (*a)->Release((*a)->bytes());
  }
  EXPECT_FALSE(embedded->Has("model.safetensors.index.json"));
  EXPECT_EQ(ErrorKind(embedded->Open("other").status()), "CORRUPT");
}

}  // namespace
}  // namespace moe
