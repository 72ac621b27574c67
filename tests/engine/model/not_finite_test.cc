// Finite weights whose products are not: the rows that come out as NaN or infinite are reported, and only for the
// sequence they belong to.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/model/test_model.h"
#include "tests/loaders/tiny_checkpoint.h"

namespace moe {
namespace {

using moe::testing::TinyTensor;

constexpr int32_t kOverflows = 5;  // the token whose logits are infinite

// Nothing but the embedding of one token has a part along the first dimension, and the head's weights for that are
// huge.
moe::testing::FileMap Overflowing() {
  moe::testing::FileMap files = moe::testing::SoundFiles();
  moe::testing::EditTensors(&files, [](std::vector<TinyTensor>* tensors) {
    for (TinyTensor& tensor : *tensors) {
      if (tensor.name == "model.norm.weight") {
        tensor.data = moe::testing::Floats(std::vector<float>(static_cast<size_t>(tensor.shape[0]), 1.0f));
      }
      const bool writes = tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight");
      const bool embeds = tensor.name == "model.embed_tokens.weight";
      const bool head = tensor.name == "lm_head.weight";
      if (!writes && !embeds && !head) continue;
      std::vector<float> values;
      for (int64_t r = 0; r < tensor.shape[0]; ++r) {
        for (int64_t c = 0; c < tensor.shape[1]; ++c) {
          float value = 0.1f * static_cast<float>((r * 5 + c * 3) % 11 - 5);
          if (writes && r == 0) value = 0;
          if (embeds && c == 0) value = r == kOverflows ? 2.0f : 0.0f;
          if (head && c == 0) value = 3e38f;
          values.push_back(value);
        }
      }
      tensor.data = moe::testing::Floats(values);
    }
  });
  return files;
}

TEST(NotFinite, IsReportedForItsSequenceAlone) {
  for (const char* backend : {"reference", "auto"}) {
    TestModel model(moe::testing::InMemory(Overflowing()), {.backend = backend});
    TestSequence* good = model.Add({1, 2, 3, 4});
    TestSequence* bad = model.Add({1, 2, 3, kOverflows});
    model.Run({good, bad}, 1, 100);
    EXPECT_FALSE(good->not_finite) << backend;
    EXPECT_TRUE(bad->not_finite) << backend;
    EXPECT_TRUE(std::isfinite(good->tokens[0].logprob)) << backend;
  }
}

// A row that nobody asks about is nobody's concern; one that a log-probability of the prompt comes from is.
TEST(NotFinite, OfThePromptWhereItIsAskedAbout) {
  TestModel model(moe::testing::InMemory(Overflowing()), {.backend = "auto"});
  TestSequence* silent = model.Add({1, kOverflows, 3, 4});
  TestSequence* asking = model.Add({1, kOverflows, 3, 4});
  asking->init.prompt_logprobs = 1;
  model.Run({silent, asking}, 1, 100);
  EXPECT_FALSE(silent->not_finite);
  EXPECT_TRUE(asking->not_finite);
}

}  // namespace
}  // namespace moe
