// One tokenizer, many threads: everybody gets what a single thread gets.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "loaders/tokenizer/incremental_detokenizer.h"
#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

TEST(Concurrency, SameIdsInEveryThread) {
  for (const std::string_view kind : {"qwen2", "mixtral", "unigram"}) {
    const auto tokenizer = LoadFixture(kind);
    const auto cases = nlohmann::json::parse(ReadFixture(kind, "cases.json"));
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> expected;
    for (const auto& item : cases["encode"]) {
      texts.push_back(item["text"]);
      expected.push_back(item["ids_with_special"]);
    }
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t round = 0; round < 20; ++round) {
          for (size_t i = 0; i < texts.size(); ++i) {
            const size_t at = (i * 7 + t * 13 + round) % texts.size();
            const auto ids = tokenizer->Encode(texts[at], {});
            if (!ids.ok() || *ids != expected[at]) ++wrong;
            if (!ids.ok()) continue;
            IncrementalDetokenizer detokenizer(*tokenizer, true);
            std::string text;
            for (const int32_t id : *ids) text += detokenizer.Push(id);
            if (text + detokenizer.Finish() != tokenizer->Decode(*ids, true)) ++wrong;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << kind;
  }
}

}  // namespace
}  // namespace moe
