// The two models against definitions written for reading.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, {.add_special_tokens = false});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(Ids());
}

// Joins the pair of lowest rank, the leftmost of equals, until none is left.
Ids JoinByDefinition(Ids symbols, const std::map<std::pair<int, int>, std::pair<int, int>>& merges) {
  while (true) {
    size_t best = symbols.size();
    int best_rank = -1;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = merges.find({symbols[i], symbols[i + 1]});
      if (it == merges.end() || (best_rank >= 0 && it->second.first >= best_rank)) continue;
      best = i;
      best_rank = it->second.first;
    }
    if (best_rank < 0) return symbols;
    symbols[best] = merges.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, EqualsItsDefinition) {
  // Random merges over five letters: many ties and overlaps, words of all lengths.
  std::mt19937 random(11);
  for (int table = 0; table < 20; ++table) {
    std::vector<std::string> tokens = {"a", "b", "c", "d", "e"};
    json merge_list = json::array();
    std::map<std::pair<int, int>, std::pair<int, int>> merges;
    for (int i = 0; i < 40; ++i) {
      const int left = static_cast<int>(random() % tokens.size());
      const int right = static_cast<int>(random() % tokens.size());
      const std::string joined = tokens[left] + tokens[right];
      if (merges.count({left, right}) > 0 || joined.size() > 12) continue;
      auto it = std::find(tokens.begin(), tokens.end(), joined);
      const int id = static_cast<int>(it - tokens.begin());
      if (it == tokens.end()) tokens.push_back(joined);
      merges[{left, right}] = {static_cast<int>(merge_list.size()), id};
      merge_list.push_back(json::array({tokens[left], tokens[right]}));
    }
    json file = BpeFile(tokens);
    file["model"]["merges"] = merge_list;
    const auto tokenizer = LoadJson(file);
    for (int word = 0; word < 200; ++word) {
      std::string text;
      Ids symbols;
      for (int i = 0; i < 1 + word; ++i) {
        symbols.push_back(static_cast<int>(random() % 5));
        text += static_cast<char>('a' + symbols.back());
      }
      ASSERT_EQ(Encode(*tokenizer, text), JoinByDefinition(symbols, merges)) << text;
    }
  }
}

TEST(Bpe, UnknownCharacters) {
  json file = BpeFile({"a", "b", "<unk>"});
  EXPECT_EQ(Encode(*LoadJson(file), "axb"), (Ids{0, 1}));  // No token for them: dropped.
  file["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(Encode(*LoadJson(file), "axyb"), (Ids{0, 2, 2, 1}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(Encode(*LoadJson(file), "xyazz"), (Ids{2, 0, 2}));
  file["model"]["unk_token"] = "<none>";
  EXPECT_EQ(Encode(*LoadJson(file), "ab"), (Ids{0, 1}));
  EXPECT_EQ(LoadJson(file)->Encode("ax", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Bpe, ByteFallback) {
  json file = BpeFile({"a", "<0xC3>", "<0xA9>", "<unk>"});
  file["model"]["unk_token"] = "<unk>";
  file["model"]["byte_fallback"] = true;
  EXPECT_EQ(Encode(*LoadJson(file), "aéa"), (Ids{0, 1, 2, 0}));
  EXPECT_EQ(Encode(*LoadJson(file), "aè"), (Ids{0, 3}));  // One of its bytes has no token.
}

TEST(Bpe, PrefixAndSuffix) {
  json file = BpeFile({"a", "##b", "##c</w>", "a</w>", "ab", "abc</w>"});
  file["model"]["continuing_subword_prefix"] = "##";
  file["model"]["end_of_word_suffix"] = "</w>";
  file["model"]["merges"] = {"a ##b", "ab ##c</w>"};
  const auto tokenizer = LoadJson(file);
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{5}));
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{3}));
}

TEST(Bpe, IgnoreMerges) {
  json file = BpeFile({"a", "b", "aba"});
  EXPECT_EQ(Encode(*LoadJson(file), "aba"), (Ids{0, 1, 0}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(Encode(*LoadJson(file), "aba"), (Ids{2}));
}

TEST(Bpe, MergesAsTextWithHeader) {
  json file = BpeFile({"a", "b", "ab"});
  file["model"]["merges"] = {"#version: 0.2", "a b"};
  EXPECT_EQ(Encode(*LoadJson(file), "abab"), (Ids{2, 2}));
}

json UnigramFile(const json& vocab, const json& unk_id, bool byte_fallback) {
  json file = BpeFile({});
  file["model"] = {{"type", "Unigram"}, {"vocab", vocab}, {"unk_id", unk_id}, {"byte_fallback", byte_fallback}};
  return file;
}

TEST(Unigram, BestPathWins) {
  const json vocab = json::parse(R"([["<unk>",0],["a",-1],["b",-1],["ab",-1.5],["bc",-3],["c",-1]])");
  const auto tokenizer = LoadJson(UnigramFile(vocab, 0, false));
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{3, 5}));
  EXPECT_EQ(Encode(*tokenizer, "xya"), (Ids{0, 1}));  // Unknown characters fuse.
}

TEST(Unigram, UnknownText) {
  const json vocab = json::parse(R"([["<unk>",0],["a",-1],["<0xC3>",-9],["<0xA9>",-9]])");
  EXPECT_EQ(Encode(*LoadJson(UnigramFile(vocab, 0, true)), "aé"), (Ids{1, 2, 3}));
  EXPECT_EQ(Encode(*LoadJson(UnigramFile(vocab, 0, true)), "éè"), (Ids{0}));  // Fused, then no token for a byte.
  const auto without = LoadJson(UnigramFile(vocab, nullptr, false));
  EXPECT_EQ(Encode(*without, "aa"), (Ids{1, 1}));
  EXPECT_EQ(without->Encode("é", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moe
