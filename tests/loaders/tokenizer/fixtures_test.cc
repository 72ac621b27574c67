// Every case that the reference implementation wrote down for the twelve kinds of tokenizer.
#include <gtest/gtest.h>

#include <optional>

#include "loaders/tokenizer/incremental_detokenizer.h"
#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

class FixtureTest : public testing::TestWithParam<std::string_view> {
 protected:
  FixtureTest() : tokenizer_(LoadFixture(GetParam())), cases_(json::parse(ReadFixture(GetParam(), "cases.json"))) {}

  // Streams `ids` and compares with all at once, and with the reference's stream where it has one.
  void CheckStream(const Ids& ids, bool keep_special, const std::string& decoded, const json& stream) {
    IncrementalDetokenizer detokenizer(*tokenizer_, keep_special);
    std::string joined;
    std::string reference;
    for (size_t i = 0; i < ids.size(); ++i) {
      joined += detokenizer.Push(ids[i]);
      ASSERT_EQ(decoded.compare(0, joined.size(), joined), 0) << "after id " << i << ": " << joined;
      // We are never behind the reference, but within a run of byte tokens: there it sends what a later byte may make
      // invalid, and then its stream and its own decoding of the whole disagree.
      if (stream.is_array() && stream[i].is_string()) reference += stream[i].get<std::string>();
      const bool in_byte_run = tokenizer_->IdToToken(ids[i]).rfind("<0x", 0) == 0;
      if (!in_byte_run && decoded.compare(0, reference.size(), reference) == 0) {
        ASSERT_GE(joined.size(), reference.size()) << "after id " << i;
      }
    }
    EXPECT_EQ(joined + detokenizer.Finish(), decoded);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json cases_;
};

TEST_P(FixtureTest, Encode) {
  ASSERT_FALSE(cases_["encode"].empty());
  for (const json& item : cases_["encode"]) {
    const std::string text = item["text"];
    SCOPED_TRACE(item["text"].dump(-1, ' ', true));
    const auto ids = tokenizer_->Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, item["ids"].get<Ids>());
    const auto with_special = tokenizer_->Encode(text, {});
    ASSERT_TRUE(with_special.ok());
    EXPECT_EQ(*with_special, item["ids_with_special"].get<Ids>());
    EXPECT_EQ(tokenizer_->Decode(*ids, true), item["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(*with_special, false), item["decoded_skip_special"].get<std::string>());
    CheckStream(*ids, true, item["decoded"], item["stream"]);
    CheckStream(*with_special, false, item["decoded_skip_special"], nullptr);
  }
}

TEST_P(FixtureTest, Decode) {
  ASSERT_FALSE(cases_["decode"].empty());
  for (const json& item : cases_["decode"]) {
    SCOPED_TRACE(item["ids"].dump());
    const Ids ids = item["ids"];
    EXPECT_EQ(tokenizer_->Decode(ids, true), item["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(ids, false), item["decoded_skip_special"].get<std::string>());
    CheckStream(ids, true, item["decoded"], item["stream"]);
    CheckStream(ids, false, item["decoded_skip_special"], item["stream_skip_special"]);
  }
}

// Text is the same text however it is cut into spans.
TEST_P(FixtureTest, SpansOfOneKindAreOneText) {
  for (const json& item : cases_["encode"]) {
    const std::string text = item["text"];
    SCOPED_TRACE(item["text"].dump(-1, ' ', true));
    for (const bool recognize : {true, false}) {
      const auto whole = tokenizer_->Encode(text, {.add_special_tokens = false, .recognize_special = recognize});
      ASSERT_TRUE(whole.ok());
      for (size_t cut = 0; cut <= text.size(); ++cut) {
        if (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;
        const Tokenizer::Span spans[] = {{std::string_view(text).substr(0, cut), recognize},
                                         {std::string_view(text).substr(cut), recognize}};
        const auto parts = tokenizer_->EncodeSpans(spans, false);
        ASSERT_TRUE(parts.ok());
        ASSERT_EQ(*parts, *whole) << "cut at " << cut;
      }
    }
  }
}

TEST_P(FixtureTest, IdsAndTokens) {
  const json file = json::parse(ReadFixture(GetParam(), "tokenizer.json"));
  int32_t highest = -1;
  for (const json& added : file["added_tokens"]) {
    const int32_t id = added["id"];
    highest = std::max(highest, id);
    EXPECT_EQ(tokenizer_->IdToToken(id), added["content"].get<std::string>());
    EXPECT_EQ(tokenizer_->TokenToId(added["content"].get<std::string>()), id);
    EXPECT_EQ(tokenizer_->IsSpecial(id), added["special"].get<bool>());
  }
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (!tokenizer_->IsValidId(id)) continue;
    highest = std::max(highest, id);
    EXPECT_EQ(tokenizer_->TokenToId(tokenizer_->IdToToken(id)), id);
  }
  EXPECT_EQ(tokenizer_->vocab_size(), highest + 1);
  EXPECT_FALSE(tokenizer_->IsValidId(-1));
  EXPECT_FALSE(tokenizer_->IsValidId(tokenizer_->vocab_size()));
  EXPECT_EQ(tokenizer_->IdToToken(tokenizer_->vocab_size()), "");
  EXPECT_EQ(tokenizer_->TokenToId("no such token"), std::nullopt);
  const json config = json::parse(ReadFixture(GetParam(), "tokenizer_config.json"));
  EXPECT_EQ(tokenizer_->bos_token(), config.value("bos_token", ""));
  EXPECT_EQ(tokenizer_->eos_token(), config.value("eos_token", ""));
  EXPECT_EQ(tokenizer_->unk_token(), config.value("unk_token", ""));
  EXPECT_EQ(tokenizer_->pad_token(), config.value("pad_token", ""));
}

INSTANTIATE_TEST_SUITE_P(Kinds, FixtureTest, testing::ValuesIn(kFixtureKinds),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace moe
