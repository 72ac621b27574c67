// Streams whose characters, bytes or spaces are spread over tokens.
#include "loaders/tokenizer/incremental_detokenizer.h"

#include <gtest/gtest.h>

#include "loaders/tokenizer/byte_alphabet.h"
#include "tests/loaders/tokenizer/test_files.h"

namespace moe {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

const json kByteLevelDecoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}};
const json kSentencePieceDecoder = {{"type", "Sequence"},
                                    {"decoders",
                                     {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                                      {{"type", "ByteFallback"}},
                                      {{"type", "Fuse"}},
                                      {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};

struct Streamed {
  Strings deltas;  // One for each token.
  std::string last;
  std::string all;  // Decoded at once.

  std::string Joined() const {
    std::string joined;
    for (const auto& delta : deltas) joined += delta;
    return joined + last;
  }
};

Streamed StreamTokens(const Strings& tokens, const json& decoder) {
  Strings vocabulary;
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    auto it = std::find(vocabulary.begin(), vocabulary.end(), token);
    ids.push_back(static_cast<int32_t>(it - vocabulary.begin()));
    if (it == vocabulary.end()) vocabulary.push_back(token);
  }
  json file = BpeFile(vocabulary);
  file["decoder"] = decoder;
  const auto tokenizer = LoadJson(file);
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  Streamed result;
  for (const int32_t id : ids) result.deltas.push_back(detokenizer.Push(id));
  result.last = detokenizer.Finish();
  result.all = tokenizer->Decode(ids, true);
  EXPECT_EQ(result.Joined(), result.all);
  return result;
}

Streamed StreamBytes(const Strings& token_bytes) {
  Strings tokens;
  for (const std::string& bytes : token_bytes) AppendByteSpelling(bytes, &tokens.emplace_back());
  return StreamTokens(tokens, kByteLevelDecoder);
}

// A character whose bytes come with several tokens is shown when it is whole, never as replacement characters.
TEST(IncrementalDetokenizer, CharactersOverSeveralTokens) {
  const Streamed emoji = StreamBytes({"Hello ", "\xF0\x9F", "\x98\x80", "!"});
  EXPECT_EQ(emoji.deltas, (Strings{"Hello ", "", "😀", "!"}));
  const Streamed hangul = StreamBytes({"\xEC\xA0", "\x9C", " \xEC", "\x8B\x9C"});
  EXPECT_EQ(hangul.deltas, (Strings{"", "제", " ", "시"}));
  const Streamed family = StreamBytes({"👨\u200d", "👩\u200d", "\xF0\x9F", "\x91\xA7"});
  EXPECT_EQ(family.deltas, (Strings{"👨\u200d", "👩\u200d", "", "👧"}));
  const Streamed accent = StreamBytes({"e\xCC", "\x81 "});
  EXPECT_EQ(accent.deltas, (Strings{"e", "\u0301 "}));
  const Streamed kanji = StreamBytes({"\xE6", "\x97", "\xA5\xE6", "\x9C\xAC"});
  EXPECT_EQ(kanji.deltas, (Strings{"", "", "日", "本"}));
  EXPECT_EQ(kanji.last, "");
}

TEST(IncrementalDetokenizer, InvalidBytesAreReplacedOnceCertain) {
  EXPECT_EQ(StreamBytes({"a", "\xFF", "b"}).deltas, (Strings{"a", "\uFFFD", "b"}));
  EXPECT_EQ(StreamBytes({"\xF0\x9F", "b"}).deltas, (Strings{"", "\uFFFDb"}));
  // Each maximal ill-formed run is one replacement: E2 82 | 28, and three bytes of an overlong form.
  EXPECT_EQ(StreamBytes({"\xE2\x82", "("}).all, "\uFFFD(");
  EXPECT_EQ(StreamBytes({"\xE0\x80\x80"}).all, "\uFFFD\uFFFD\uFFFD");
  const Streamed cut = StreamBytes({"ok", "\xF0\x9F\x98"});
  EXPECT_EQ(cut.deltas, (Strings{"ok", ""}));
  EXPECT_EQ(cut.last, "\uFFFD");
}

// Each token decoded by itself would lose the space before it.
TEST(IncrementalDetokenizer, OnlyTheFirstSpaceIsDropped) {
  EXPECT_EQ(StreamTokens({"▁Hello", "▁world", "!"}, kSentencePieceDecoder).deltas, (Strings{"Hello", " world", "!"}));
  EXPECT_EQ(StreamTokens({"Hello", "▁world"}, kSentencePieceDecoder).deltas, (Strings{"Hello", " world"}));
  EXPECT_EQ(StreamTokens({"▁", "▁a"}, kSentencePieceDecoder).deltas, (Strings{"", " a"}));
}

// Byte tokens (<0xE6>) are bytes of characters, not text, also where a character stays incomplete.
TEST(IncrementalDetokenizer, ByteFallback) {
  const auto stream = [](const Strings& tokens) { return StreamTokens(tokens, kSentencePieceDecoder); };
  EXPECT_EQ(stream({"▁Hello", "<0xE6>", "<0x97>", "<0xA5>", "▁world"}).all, "Hello日 world");
  const Streamed cut = stream({"▁Hello", "<0xE6>", "<0x97>", "▁world"});
  EXPECT_EQ(cut.deltas, (Strings{"Hello", "", "", "\uFFFD\uFFFD world"}));
  EXPECT_EQ(stream({"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}).all, "😀");
  EXPECT_EQ(stream({"<0xFF>", "!"}).deltas, (Strings{"", "\uFFFD!"}));
  // One bad byte spoils the run, also the good characters before it.
  EXPECT_EQ(stream({"<0xC3>", "<0xA9>", "<0xFF>", "x"}).all, "\uFFFD\uFFFD\uFFFDx");
  EXPECT_EQ(stream({"<0x41>", "<0xG1>", "<0x4>"}).all, "A<0xG1><0x4>");
}

TEST(IncrementalDetokenizer, StepsAcrossTokens) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "abab"}}}, {"content", "-"}};
  const json fuse = {{"type", "Fuse"}};
  const json fused = {{"type", "Sequence"}, {"decoders", {fuse, replace}}};
  EXPECT_EQ(StreamTokens({"xab", "a", "bab", "ab"}, fused).all, "x--");
  EXPECT_EQ(StreamTokens({"xab", "a", "c", "aba"}, fused).all, "xabacaba");
  const json apart = {{"type", "Sequence"}, {"decoders", {replace}}};
  EXPECT_EQ(StreamTokens({"xab", "ab", "abab"}, apart).all, "xabab-");
  const json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "o+"}}}, {"content", "0"}};
  EXPECT_EQ(StreamTokens({"fo", "o", "d"}, {{"type", "Sequence"}, {"decoders", {fuse, regex}}}).all, "f0d");
  const json strip = {{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 2}};
  EXPECT_EQ(StreamTokens({"__a_", "b_", "_", "__"}, {{"type", "Sequence"}, {"decoders", {fuse, strip}}}).all, "_a_b__");
  EXPECT_EQ(StreamTokens({"__a_", "_b_"}, strip).all, "_ab");
}

TEST(IncrementalDetokenizer, MetaspaceAndNoDecoder) {
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(StreamTokens({"▁▁a", "▁b▁", "c"}, metaspace).all, "a b c");
  const json never = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
  EXPECT_EQ(StreamTokens({"▁a", "▁b"}, never).all, " a b");
  EXPECT_EQ(StreamTokens({"a", "b"}, nullptr).all, "a b");
}

TEST(IncrementalDetokenizer, UnknownIdsGiveNothing) {
  const auto tokenizer = LoadFixture("gpt2");
  IncrementalDetokenizer detokenizer(*tokenizer, false);
  for (const int32_t id : {-1, 1 << 30, tokenizer->vocab_size()}) EXPECT_EQ(detokenizer.Push(id), "");
  EXPECT_EQ(detokenizer.Push(*tokenizer->TokenToId("<|endoftext|>")), "");
  EXPECT_EQ(detokenizer.Push(*tokenizer->TokenToId("a")), "a");
  EXPECT_EQ(detokenizer.Finish(), "");
  const std::vector<int32_t> ids = {-5, *tokenizer->TokenToId("a"), 99999999};
  EXPECT_EQ(tokenizer->Decode(ids, true), "a");
}

}  // namespace
}  // namespace moe
