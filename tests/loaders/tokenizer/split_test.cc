// Pre-tokenizers: where text is cut.
#include <gtest/gtest.h>

#include "loaders/tokenizer/pre_tokenizer.h"

namespace moe {
namespace {

using Strings = std::vector<std::string>;

Strings Cut(const Json& json, const std::string& text, bool at_text_start = true) {
  const auto step = CreatePreTokenizer(&json, "pre_tokenizer");
  EXPECT_TRUE(step.ok()) << step.status();
  Pieces pieces;
  pieces.text = text;
  pieces.list.push_back({0, text.size(), at_text_start});
  EXPECT_TRUE((*step)->Apply(&pieces).ok());
  Strings parts;
  for (const Piece& piece : pieces.list) parts.emplace_back(pieces.View(piece));
  return parts;
}

Json Split(const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
}

TEST(Split, Behaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(Cut(Split("Removed"), text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(Cut(Split("Isolated"), text), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(Cut(Split("MergedWithPrevious"), text), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(Cut(Split("MergedWithNext"), text), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(Cut(Split("Contiguous"), text), (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(Split, Inverted) {
  EXPECT_EQ(Cut(Split("Removed", true), "a-b--c"), (Strings{"-", "-", "-"}));
  EXPECT_EQ(Cut(Split("Isolated", true), "a-b--c"), (Strings{"a", "-", "b", "-", "-", "c"}));
  EXPECT_EQ(Cut(Split("MergedWithNext", true), "a-b"), (Strings{"a-", "b"}));
}

TEST(Split, EmptyMatchesSeparate) {
  const Json json = {{"type", "Split"}, {"pattern", {{"Regex", "(?=b)"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(Cut(json, "abcb"), (Strings{"a", "bc", "b"}));
  const Json empty = {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(Cut(empty, "aé"), (Strings{"a", "é"}));
}

TEST(Split, CharacterClasses) {
  EXPECT_EQ(Cut({{"type", "Digits"}, {"individual_digits", true}}, "a12Ⅷb"), (Strings{"a", "1", "2", "Ⅷ", "b"}));
  EXPECT_EQ(Cut({{"type", "Digits"}, {"individual_digits", false}}, "a12b3"), (Strings{"a", "12", "b", "3"}));
  EXPECT_EQ(Cut({{"type", "Whitespace"}}, "Hey friend!!  ok"), (Strings{"Hey", "friend", "!!", "ok"}));
  EXPECT_EQ(Cut({{"type", "WhitespaceSplit"}}, " Hey\u3000friend! "), (Strings{"Hey", "friend!"}));
  EXPECT_EQ(Cut({{"type", "Punctuation"}}, "a$b。?"), (Strings{"a", "$", "b", "。", "?"}));
  EXPECT_EQ(Cut({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a?!b"), (Strings{"a", "?!", "b"}));
  EXPECT_EQ(Cut({{"type", "BertPreTokenizer"}}, "Hi, you "), (Strings{"Hi", ",", "you"}));
}

TEST(Split, Metaspace) {
  const auto metaspace = [](const char* scheme, bool split) -> Json {
    return {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
  };
  EXPECT_EQ(Cut(metaspace("always", true), "Hey  you"), (Strings{"▁Hey", "▁", "▁you"}));
  EXPECT_EQ(Cut(metaspace("always", true), " Hey"), (Strings{"▁Hey"}));
  EXPECT_EQ(Cut(metaspace("never", true), "Hey you"), (Strings{"Hey", "▁you"}));
  EXPECT_EQ(Cut(metaspace("first", false), "Hey you"), (Strings{"▁Hey▁you"}));
  EXPECT_EQ(Cut(metaspace("first", false), "Hey you", /*at_text_start=*/false), (Strings{"Hey▁you"}));
  const Json old = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}};
  EXPECT_EQ(Cut({{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", true}}, "a"), (Strings{"▁a"}));
  EXPECT_EQ(Cut(old, "a"), (Strings{"a"}));
  // Only the first piece of what was cut before begins the text.
  const Json sequence = {{"type", "Sequence"}, {"pretokenizers", {Split("Removed"), metaspace("first", true)}}};
  EXPECT_EQ(Cut(sequence, "a-b"), (Strings{"▁a", "b"}));
}

TEST(Split, ByteLevel) {
  EXPECT_EQ(Cut({{"type", "ByteLevel"}, {"add_prefix_space", false}}, "Hello there's  é1"),
            (Strings{"Hello", "Ġthere", "'s", "Ġ", "ĠÃ©", "1"}));
  EXPECT_EQ(Cut({{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}, "a b"), (Strings{"ĠaĠb"}));
}

}  // namespace
}  // namespace moe
