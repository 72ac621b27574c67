// Text that is one enormous word, or one enormous anything: bounded time, and a small stack is enough.
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <random>

#include "loaders/tokenizer/incremental_detokenizer.h"
#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

constexpr size_t kTextBytes = 50 * 1024;
// For 50 KiB, on a machine that may be busy and under sanitizers. Quadratic work would take minutes.
constexpr double kLimitSeconds = 10;

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::vector<std::string> HardTexts() {
  std::mt19937 random(3);
  std::string letters;
  while (letters.size() < kTextBytes) letters += static_cast<char>('a' + random() % 26);
  return {
      letters,
      Repeat("a", kTextBytes),
      Repeat(" ", kTextBytes),
      Repeat(" ", kTextBytes) + "x",
      Repeat(" ", kTextBytes) + "中",
      Repeat("\n", kTextBytes) + "x",
      Repeat(" \n", kTextBytes) + "x",
      Repeat("\t\u3000", kTextBytes) + "é",
      Repeat("7", kTextBytes),
      Repeat("中文", kTextBytes),
      Repeat("😀", kTextBytes),
      Repeat("!?", kTextBytes),
      Repeat("<|im_", kTextBytes),
      Repeat("aB", kTextBytes),
      Repeat("'s", kTextBytes),
      Repeat("\u0301\u0316", kTextBytes),  // Marks that canonical ordering has to sort.
      Repeat("\uAC00", kTextBytes),
      Repeat("▁", kTextBytes),
  };
}

// Runs `work` on a thread with 128 KiB of stack.
void RunOnSmallStack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
#if !defined(__SANITIZE_ADDRESS__)
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 * 1024), 0);
#endif
  pthread_t thread;
  const auto start = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

class WordBoundTest : public testing::TestWithParam<std::string_view> {};

TEST_P(WordBoundTest, EncodesAndDecodesQuickly) {
  const auto tokenizer = LoadFixture(GetParam());
  for (const std::string& text : HardTexts()) {
    SCOPED_TRACE(testing::Message() << "text of " << text.substr(0, 12) << "… " << text.substr(text.size() - 4));
    RunOnSmallStack([&] {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = tokenizer->Encode(text, {.add_special_tokens = false, .recognize_special = false});
      ASSERT_TRUE(ids.ok()) << ids.status();
      IncrementalDetokenizer detokenizer(*tokenizer, true);
      std::string joined;
      for (const int32_t id : *ids) joined += detokenizer.Push(id);
      joined += detokenizer.Finish();
      EXPECT_EQ(joined, tokenizer->Decode(*ids, true));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_LT(took.count(), kLimitSeconds);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WordBoundTest, testing::ValuesIn(kFixtureKinds),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace moe
