#include "engine/text/text_output.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace moe {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

class TextOutputTest : public ::testing::Test {
 protected:
  TextOutputTest() {
    const std::string dir = std::string(MOE_SOURCE_DIR) + "/loaders/demo/shakespeare-qwen3moe/";
    auto tokenizer = Tokenizer::Create(ReadFile(dir + "tokenizer.json"), ReadFile(dir + "tokenizer_config.json"));
    if (!tokenizer.ok()) ADD_FAILURE() << tokenizer.status();
    tokenizer_ = std::move(*tokenizer);
  }
  std::vector<int32_t> Encode(std::string_view text) {
    return *tokenizer_->Encode(text, {.add_special_tokens = false});
  }
  int32_t AnySpecial() {
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->IsSpecial(id)) return id;
    }
    return -1;
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::string EndWith(TextOutput& out, int32_t token) {
  std::string text = out.Push(token, true);
  return text + out.Finish();
}

TEST_F(TextOutputTest, DeltasAreTheTextAndWholeCharacters) {
  const std::string text = "ROMEO: O, she doth teach \xF0\x9F\x98\x80 the torches \xE2\x80\x94 to burn bright!";
  TextOutput out(*tokenizer_, {});
  std::string joined;
  for (int32_t id : Encode(text)) {
    const std::string delta = out.Push(id, false);
    if (!delta.empty()) {
      EXPECT_NE(static_cast<unsigned char>(delta[0]) & 0xC0, 0x80) << "begins inside a character";
    }
    joined += delta;
  }
  joined += out.Finish();
  EXPECT_EQ(joined, text);
  EXPECT_FALSE(out.stopped());
}

TEST_F(TextOutputTest, StopStringOverTokens) {
  for (bool include : {false, true}) {
    TextOutput out(*tokenizer_, {.stop = {"teach the", "burn"}, .include_stop = include});
    std::string joined;
    for (int32_t id : Encode("ROMEO: O, she doth teach the torches to burn bright!")) joined += out.Push(id, false);
    joined += out.Finish();
    EXPECT_EQ(joined, include ? "ROMEO: O, she doth teach the" : "ROMEO: O, she doth ");
    EXPECT_TRUE(out.stopped());
    EXPECT_EQ(out.stop_match(), "teach the");
  }
}

TEST_F(TextOutputTest, StopStringsDoNotCountBeforeTheLeastNumberOfTokens) {
  const std::vector<int32_t> ids = Encode("ROMEO: O, she doth teach the torches to burn bright!");
  const std::string words = tokenizer_->Decode(ids, /*keep_special=*/false);
  for (int64_t least = 0; least <= static_cast<int64_t>(ids.size()); ++least) {
    TextOutput out(*tokenizer_, {.stop = {"o", "e"}, .min_tokens = least});
    std::string joined;
    int64_t tokens = 0;
    for (size_t i = 0; i < ids.size() && !out.stopped(); ++i, ++tokens) joined += out.Push(ids[i], false);
    joined += out.Finish();
    // What the first `least` tokens say stays, then the first of the two letters ends the text.
    const std::vector<int32_t> beginning(ids.begin(), ids.begin() + least);
    const size_t first = tokenizer_->Decode(beginning, /*keep_special=*/false).size();
    const size_t end = words.find_first_of("oe", first);
    EXPECT_EQ(joined, words.substr(0, end)) << least;
    EXPECT_EQ(out.stopped(), end != std::string::npos) << least;
    EXPECT_TRUE(!out.stopped() || tokens > least) << tokens << " tokens, at least " << least;
  }
}

TEST_F(TextOutputTest, TheEndTokenIsNotShown) {
  const std::vector<int32_t> ids = Encode("to burn");
  TextOutput ordinary(*tokenizer_, {});
  EXPECT_EQ(EndWith(ordinary, ids[0]), "") << "a stop token that is an ordinary word";
  const int32_t special = AnySpecial();
  ASSERT_GE(special, 0);
  TextOutput hidden(*tokenizer_, {});
  EXPECT_EQ(EndWith(hidden, special), "");
  TextOutput kept(*tokenizer_, {.keep_special_tokens = true});
  EXPECT_EQ(EndWith(kept, special), "") << "kept special tokens are those inside the text";
}

TEST_F(TextOutputTest, HeldBackTextComesWithFinish) {
  TextOutput out(*tokenizer_, {.stop = {"bright!!"}});
  std::string joined;
  for (int32_t id : Encode("burn bright!")) joined += out.Push(id, false);
  EXPECT_EQ(joined, "burn ");
  EXPECT_EQ(out.Finish(), "bright!");
  EXPECT_FALSE(out.stopped());
}

}  // namespace
}  // namespace moe
