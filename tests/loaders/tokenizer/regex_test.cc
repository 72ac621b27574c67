#include "loaders/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <random>

#include "loaders/tokenizer/regex_syntax.h"
#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

using Strings = std::vector<std::string>;

Strings Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status();
  if (!regex.ok()) return {};
  std::vector<TextRange> ranges;
  EXPECT_TRUE((*regex)->FindAll(text, &ranges).ok());
  Strings matches;
  for (const TextRange& range : ranges) matches.emplace_back(text.substr(range.begin, range.end - range.begin));
  return matches;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(Matches(R"(\s+)", "a \u0085\u3000b\u180Ec"), (Strings{" \u0085\u3000"}));  // U+180E is no space.
  EXPECT_EQ(Matches(R"(\S+)", "a\u180Eb c"), (Strings{"a\u180Eb", "c"}));
  EXPECT_EQ(Matches(R"([^\s\p{L}]+)", "a\u180E1 b"), (Strings{"\u180E1"}));
  EXPECT_EQ(Matches(R"([\S]+)", "a b"), (Strings{"a", "b"}));
  EXPECT_EQ(Matches(R"(\w+)", "a\u0301_1\u00B2-b"), (Strings{"a\u0301_1", "b"}));  // ² is no decimal digit.
  EXPECT_EQ(Matches(R"(\h+)", "xyz12aF g"), (Strings{"12aF"}));
  EXPECT_EQ(Matches(R"(\v)", "\n\v"), (Strings{"\v"}));
  EXPECT_EQ(Matches(R"(^.)", "a\nb\n"), (Strings{"a", "b"}));
  EXPECT_EQ(Matches(R"(\p{N}{1,3}+)", "1234567 89"), (Strings{"1234567", "89"}));  // Repeated, not possessive.
  EXPECT_EQ(Matches(R"((?:ab){1,2}+)", "ababab"), (Strings{"ababab"}));
  EXPECT_EQ(Matches(R"(a{,2}b)", "aaab b"), (Strings{"aab", "b"}));
  EXPECT_EQ(Matches(R"([\p{L}&&[^\p{Han}]]+)", "ab中c"), (Strings{"ab", "c"}));
  EXPECT_EQ(Matches(R"([a-z&&b-y]+)", "abyz"), (Strings{"by"}));
  EXPECT_EQ(Matches(R"([a[0-9]]+)", "ba1c"), (Strings{"a1"}));
  EXPECT_EQ(Matches(R"([[:digit:]x]+)", "a12x"), (Strings{"12x"}));
  EXPECT_EQ(Matches(R"(\p{Han}+)", "中ー"), (Strings{"中"}));  // The script, not its extensions.
  EXPECT_EQ(Matches(R"(\p{^L}+|\P{^N})", "ab1-"), (Strings{"1-"}));
  EXPECT_EQ(Matches(R"((?i:'s|'t))", "'S 'ſ 't"), (Strings{"'S", "'ſ", "'t"}));
  EXPECT_EQ(Matches(R"((?m:a.b))", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(Matches(R"(\u4e2d)", "中"), (Strings{"中"}));
  EXPECT_EQ(Matches(R"(a*)", "baac"), (Strings{"", "aa", ""}));
  EXPECT_EQ(Matches(R"(x{2}{y})", "xx{y}"), (Strings{"xx{y}"}));
}

TEST(Regex, RefusesWhatItCannotMean) {
  for (const char* pattern : {"(a", "[a", "a)", "\\k<n>", "(?~a)", "(?x:a)", "(*UTF)a", "[^a&&b]", "[a[^b]]", "\\",
                              "\\p{", "\\p{Nonsense}", "[\\W]", "\\y", "\\C", "(?", "[[:alpha:]", "[b-a]"}) {
    const auto regex = Regex::Compile(pattern);
    EXPECT_EQ(ErrorKind(regex.status()), "UNSUPPORTED") << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(100000, 'a')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(5000, '(') + std::string(5000, ')')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(5000, '[')).ok());
}

TEST(Regex, LiteralIsItself) {
  const std::string odd = "a.b[c]*(d)|^$\\E+?{1}#-&~ é";
  std::vector<TextRange> ranges;
  const auto regex = Regex::CompileLiteral(odd);
  ASSERT_TRUE(regex.ok()) << regex.status();
  ASSERT_TRUE((*regex)->FindAll("x" + odd + odd, &ranges).ok());
  EXPECT_EQ(ranges.size(), 2u);
  EXPECT_EQ(Matches(EscapeRegex(odd), "x" + odd), (Strings{odd}));
}

TEST(Regex, RunawayIsStopped) {
  const auto regex = Regex::Compile("(a+)+$");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> ranges;
  const Status status = (*regex)->FindAll(std::string(5000, 'a') + "b", &ranges);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

// `\s+$` has its own matcher; PCRE2 says the same for a pattern that only looks different.
TEST(Regex, TrailingSpaceEqualsThePattern) {
  const auto own = Regex::Compile(R"(\s+$)");
  const auto pcre2 = Regex::Compile(R"((?:\s)+$)");
  ASSERT_TRUE(own.ok() && pcre2.ok());
  std::mt19937 random(5);
  const char* const units[] = {" ", "\n", "\t", "\u3000", "a", "中", "\r", "\u0085"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = 0; i < 1 + round % 9; ++i) text += units[random() % 8];
    std::vector<TextRange> a, b;
    ASSERT_TRUE((*own)->FindAll(text, &a).ok());
    ASSERT_TRUE((*pcre2)->FindAll(text, &b).ok());
    ASSERT_EQ(a.size(), b.size()) << testing::PrintToString(text);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].begin, b[i].begin) << testing::PrintToString(text);
      ASSERT_EQ(a[i].end, b[i].end) << testing::PrintToString(text);
    }
  }
}

TEST(Regex, SpacesAgreeWithTheCharacterClass) {
  std::string all;
  for (char32_t c = 0; c < 0x10000; ++c) {
    if (c < 0xD800 || c >= 0xE000) AppendUtf8(c, &all);
  }
  for (const std::string& match : Matches(R"(\s)", all)) {
    size_t pos = 0;
    EXPECT_TRUE(IsWhiteSpace(NextCodePoint(match, &pos)));
  }
  EXPECT_EQ(Matches(R"(\s)", all).size(), 25u);
  EXPECT_EQ(Matches(R"([^\S])", all).size(), 25u);
}

}  // namespace
}  // namespace moe
