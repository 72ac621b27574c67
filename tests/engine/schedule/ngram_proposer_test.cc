#include "engine/schedule/ngram_proposer.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace moe {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Propose(NgramProposer& proposer, const Tokens& tokens, int64_t count) {
  Tokens guess = {-1};  // what was there goes
  proposer.Propose(tokens, count, &guess);
  return guess;
}

Tokens Propose(int64_t min_n, int64_t max_n, const Tokens& tokens, int64_t count) {
  NgramProposer proposer(min_n, max_n);
  return Propose(proposer, tokens, count);
}

// What the header promises, by looking at every place.
Tokens Expected(int64_t min_n, int64_t max_n, const Tokens& tokens, int64_t count) {
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t n = std::min(max_n, size - 1); n >= min_n; --n) {
    for (int64_t end = size - 1; end >= n; --end) {
      if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + (end - n))) continue;
      Tokens all = tokens;
      for (int64_t i = 0; i < count; ++i) all.push_back(all[end + i]);
      return {all.begin() + size, all.end()};
    }
  }
  return {};
}

TEST(NgramProposer, NothingWithoutAnEarlierRun) {
  EXPECT_EQ(Propose(2, 4, {}, 5), Tokens());
  EXPECT_EQ(Propose(2, 4, {1}, 5), Tokens());
  EXPECT_EQ(Propose(1, 4, {1, 2, 3}, 5), Tokens());
  EXPECT_EQ(Propose(2, 4, {1, 2, 3, 2}, 5), Tokens());  // one token alike is too few
  EXPECT_EQ(Propose(2, 4, {1, 2, 3, 1, 2}, 0), Tokens());
}

TEST(NgramProposer, FollowsTheRun) {
  EXPECT_EQ(Propose(2, 4, {1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(Propose(2, 4, {1, 2, 3, 4, 5, 1, 2}, 1), (Tokens{3}));
}

TEST(NgramProposer, TheLatestOfEqualRuns) {
  EXPECT_EQ(Propose(2, 2, {1, 2, 3, 1, 2, 4, 1, 2}, 1), (Tokens{4}));
}

TEST(NgramProposer, ALongerRunBeforeALaterOne) {
  EXPECT_EQ(Propose(1, 3, {7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2}, 2), (Tokens{3, 9}));
}

TEST(NgramProposer, APeriodGoesOn) {
  EXPECT_EQ(Propose(1, 4, {5, 5}, 4), (Tokens{5, 5, 5, 5}));
  EXPECT_EQ(Propose(2, 4, {1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(NgramProposer, GrowsWithTheSequence) {
  std::mt19937_64 random(1);
  for (const int32_t vocab : {2, 5, 12}) {
    for (const auto& [min_n, max_n] : {std::pair<int64_t, int64_t>{1, 1}, {2, 4}, {3, 3}, {1, 6}}) {
      NgramProposer proposer(min_n, max_n);
      Tokens tokens;
      int64_t lost = 0;
      int64_t found = 0;
      while (tokens.size() < 600) {
        for (uint64_t i = random() % 7; i-- > 0;) tokens.push_back(static_cast<int32_t>(random() % vocab));
        const Tokens want = Expected(min_n, max_n, tokens, 4);
        const Tokens got = Propose(proposer, tokens, 4);
        found += want.empty() ? 0 : 1;
        // The table may lose a run to another one, but seldom.
        if (got != want) ++lost;
      }
      EXPECT_GT(found, 10) << vocab << ", runs of " << min_n << " to " << max_n;
      EXPECT_LE(lost, 12) << vocab << ", runs of " << min_n << " to " << max_n;
    }
  }
}

// Whatever is proposed stood behind an equal run: also when the table is far too small for the sequence.
TEST(NgramProposer, NeverInventsARun) {
  std::mt19937_64 random(2);
  NgramProposer proposer(2, 3);
  Tokens tokens;
  int64_t proposed = 0;
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < 300; ++i) tokens.push_back(static_cast<int32_t>(random() % 300));
    const Tokens guess = Propose(proposer, tokens, 3);
    if (guess.empty()) continue;
    ++proposed;
    Tokens run(tokens.end() - 2, tokens.end());
    run.insert(run.end(), guess.begin(), guess.end());
    // The guess may reach beyond the end, where it goes on with itself.
    Tokens all = tokens;
    all.insert(all.end(), guess.begin(), guess.end());
    EXPECT_NE(std::search(all.begin(), all.end() - 1, run.begin(), run.end()), all.end() - 1);
  }
  EXPECT_GT(proposed, 50);
}

}  // namespace
}  // namespace moe
