#include "engine/text/stop_matcher.h"

#include <chrono>
#include <random>

#include "gtest/gtest.h"

namespace moe {
namespace {

struct Outcome {
  std::vector<std::string> deltas;
  std::string text;
  std::string match;
  bool matched = false;
};

Outcome Feed(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Outcome out;
  for (const std::string& piece : pieces) {
    StopMatcher::Result r = matcher.Push(piece);
    out.deltas.push_back(r.text);
    out.text += r.text;
    if (r.matched) {
      EXPECT_FALSE(out.matched) << "matched twice";
      out.matched = true;
      out.match = r.match;
    }
  }
  StopMatcher::Result r = matcher.Finish();
  out.text += r.text;
  if (r.matched) {
    out.matched = true;
    out.match = r.match;
  }
  return out;
}

// The contract, by trying every start.
Outcome Slow(const std::string& text, const std::vector<std::string>& stops) {
  Outcome out;
  for (size_t start = 0; start < text.size(); ++start) {
    for (const std::string& stop : stops) {
      if (stop.empty() || text.compare(start, stop.size(), stop) != 0) continue;
      if (!out.matched || stop.size() < out.match.size()) out.match = stop;
      out.matched = true;
    }
    if (out.matched) {
      out.text = text.substr(0, start);
      return out;
    }
  }
  out.text = text;
  return out;
}

TEST(StopMatcher, StopStringOverSeveralPieces) {
  Outcome a = Feed({"An old li", "ght", "house", " here"}, {"ghthouse"});
  EXPECT_EQ(a.deltas, (std::vector<std::string>{"An old li", "", "", ""}));
  EXPECT_EQ(a.match, "ghthouse");
  Outcome b = Feed({"a", "#", "#E", "ND b"}, {"##END"});
  EXPECT_EQ(b.deltas, (std::vector<std::string>{"a", "", "", ""}));
  EXPECT_EQ(b.match, "##END");
}

TEST(StopMatcher, EarliestStartThenFirstToComplete) {
  Outcome a = Feed({"xEN", "DINGy"}, {"ENDING", "END"});
  EXPECT_EQ(a.deltas, (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(a.match, "END");
  Outcome b = Feed({"foo STOP bar HALT"}, {"HALT", "STOP"});
  EXPECT_EQ(b.deltas, (std::vector<std::string>{"foo "}));
  EXPECT_EQ(b.match, "STOP");
  Outcome c = Feed({"12", "3", ",", "4"}, {"3,", "2"});
  EXPECT_EQ(c.text, "1");
  EXPECT_EQ(c.deltas[0], "1");
  EXPECT_EQ(c.match, "2");
}

TEST(StopMatcher, WaitsForAnEarlierStartAndGivesUpAtTheEnd) {
  EXPECT_EQ(Feed({"xabc", "d"}, {"abcd", "c"}).match, "abcd");
  EXPECT_EQ(Feed({"xabc", "e"}, {"abcd", "c"}).match, "c");
  EXPECT_EQ(Feed({"xabc", "e"}, {"abcd", "c"}).text, "xab");
  EXPECT_EQ(Feed({"xabc"}, {"abcd", "c"}).match, "c");
  EXPECT_EQ(Feed({"xabc"}, {"abcd", "c"}).text, "xab");
}

TEST(StopMatcher, HoldsBackNoMoreThanNeeded) {
  StopMatcher m({"\n\n", "###"});
  EXPECT_EQ(m.Push("one\n").text, "one");
  EXPECT_EQ(m.Push("two##").text, "\ntwo");
  EXPECT_EQ(m.Push("a").text, "##a");
  EXPECT_EQ(m.Push("#").text, "");
  EXPECT_EQ(m.Finish().text, "#");
  StopMatcher none({"", ""});
  EXPECT_EQ(none.Push("anything").text, "anything");
}

TEST(StopMatcher, PiecesThatDoNotCount) {
  StopMatcher ends({"END", "x"});
  EXPECT_FALSE(ends.Push("xEND a x", false).matched);
  EXPECT_EQ(ends.Push("b").text, "xb") << "an occurrence that did not count is text";
  EXPECT_TRUE(ends.Push("x").matched);
  StopMatcher across({"END"});
  EXPECT_EQ(across.Push("END EN", false).text, "END ");
  const StopMatcher::Result result = across.Push("D");
  EXPECT_TRUE(result.matched) << "what begins in a piece that does not count may end in one that does";
  EXPECT_EQ(result.text, "");
}

TEST(StopMatcher, RandomTextsEqualTheSlowSearchHoweverCut) {
  std::mt19937 gen(11);
  auto random_text = [&](int length, int letters) {
    std::string s;
    for (int i = 0; i < length; ++i) s += static_cast<char>('a' + gen() % letters);
    return s;
  };
  for (int round = 0; round < 20000; ++round) {
    const int letters = 1 + gen() % 3;
    std::vector<std::string> stops;
    for (int i = gen() % 5; i >= 0; --i) stops.push_back(random_text(gen() % 7, letters));
    const std::string text = random_text(gen() % 40, letters + 1);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = gen() % 5;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    const Outcome want = Slow(text, stops);
    const Outcome got = Feed(pieces, stops);
    ASSERT_EQ(got.text, want.text) << "round " << round << " text " << text;
    ASSERT_EQ(got.matched, want.matched) << "round " << round;
    ASSERT_EQ(got.match, want.match) << "round " << round;
  }
}

TEST(StopMatcher, LinearOnTextMadeToBeSlow) {
  // A long stop string of one letter and a text that nearly matches it everywhere.
  StopMatcher m({std::string(20000, 'a') + "b"});
  const auto start = std::chrono::steady_clock::now();
  size_t sent = 0;
  for (int i = 0; i < 2000; ++i) sent += m.Push(std::string(100, i % 250 == 249 ? 'c' : 'a')).text.size();
  sent += m.Finish().text.size();
  EXPECT_EQ(sent, 200000u);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5.0);
}

}  // namespace
}  // namespace moe
