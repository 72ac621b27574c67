#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "engine/sample/philox.h"
#include "engine/sample/weights.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  std::vector<float> logits;
  int32_t argmax = 0;
  float max = 0;
  float log_sum_exp = 0;
};

Row MakeRow(std::vector<float> logits) {
  Row row;
  row.logits = std::move(logits);
  row.argmax = std::max(ArgMax(row.logits), 0);
  row.max = row.logits[row.argmax];
  double sum = 0;
  for (float v : row.logits) sum += std::exp(static_cast<double>(v) - row.max);
  row.log_sum_exp = static_cast<float>(row.max + std::log(sum));
  return row;
}

std::vector<float> RandomLogits(int64_t n, uint32_t seed, float spread = 3.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(n);
  for (float& v : out) v = normal(gen);
  return out;
}

SequenceInit Init(SamplingParams params, std::vector<int32_t> tokens = {0}, int64_t prompt_len = -1) {
  SequenceInit init;
  init.prompt_len = prompt_len < 0 ? static_cast<int64_t>(tokens.size()) : prompt_len;
  init.tokens = std::move(tokens);
  init.sampling = std::move(params);
  return init;
}

int32_t One(const SequenceInit& init, const Row& row) {
  SamplerScratch scratch;
  Sampler sampler(init, static_cast<int64_t>(row.logits.size()));
  return sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id;
}

// What the documented order of processing gives, written slowly in double.
std::vector<double> ExactProbabilities(const std::vector<float>& logits, const SamplingParams& p) {
  const size_t n = logits.size();
  std::vector<std::pair<double, int>> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = {-static_cast<double>(logits[i]), static_cast<int>(i)};
  std::sort(order.begin(), order.end());
  size_t keep = n;
  if (p.top_k > 0) keep = std::min<size_t>(keep, p.top_k);
  std::vector<double> w(n, 0.0);
  double total = 0;
  for (size_t i = 0; i < keep; ++i) {
    const double x = std::exp((order[0].first - order[i].first) / p.temperature);
    w[order[i].second] = x;
    total += x;
  }
  if (p.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < keep && sum < p.top_p * total) sum += w[order[i++].second];
    for (; i < keep; ++i) w[order[i].second] = 0;
  }
  for (double& x : w) x = x < p.min_p ? 0 : x;
  total = 0;
  for (double x : w) total += x;
  for (double& x : w) x /= total;
  return w;
}

void ExpectChiSquare(const std::vector<float>& logits, SamplingParams params, uint64_t seed) {
  const Row row = MakeRow(logits);
  const std::vector<double> p = ExactProbabilities(logits, params);
  params.seed = seed;
  SamplerScratch scratch;
  Sampler sampler(Init(params), static_cast<int64_t>(logits.size()));
  constexpr int kDraws = 6000;
  std::vector<int> count(logits.size());
  for (int i = 0; i < kDraws; ++i) ++count[sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id];
  double chi = 0;
  int cells = 0;
  double rest_expected = 0, rest_count = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(count[i], 0) << "token " << i << " was excluded";
      continue;
    }
    if (p[i] * kDraws < 8) {  // small cells together
      rest_expected += p[i] * kDraws;
      rest_count += count[i];
      continue;
    }
    chi += std::pow(count[i] - p[i] * kDraws, 2) / (p[i] * kDraws);
    ++cells;
  }
  if (rest_expected > 8) {
    chi += std::pow(rest_count - rest_expected, 2) / rest_expected;
    ++cells;
  }
  // A right sampler exceeds f + 2√(f x) + 2x with a probability below e^-x (Laurent and Massart, 2000).
  const double freedom = std::max(cells - 1, 1);
  const double x = 14;
  EXPECT_LT(chi, freedom + 2 * std::sqrt(freedom * x) + 2 * x) << cells << " cells, seed " << seed;
}

TEST(Philox, KnownAnswers) {
  // Random123's known-answer vectors.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Weights, CloseToExp) {
  for (float x = 0; x > -86.9f; x -= 0.0137f) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_NEAR(WeightOf(x, 0, 1) / exact, 1.0, 3e-7) << x;
  }
  EXPECT_EQ(WeightOf(0, 0, 1), 1.0f);
  EXPECT_EQ(WeightOf(-88, 0, 1), 0.0f);
  EXPECT_EQ(WeightOf(-kInf, 0, 1), 0.0f);
  EXPECT_EQ(WeightOf(kNan, 0, 1), 0.0f);
}

TEST(Weights, VectorisedLoopGivesTheSameBitsAsOneValue) {
  const std::vector<float> logits = RandomLogits(5003, 9, 20.0f);
  std::vector<float> weights;
  std::vector<double> sums;
  ComputeWeights(logits, 40.0f, 1.3f, 0, weights, sums);
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(weights[i], WeightOf(logits[i], 40.0f, 1.3f)) << i;
}

TEST(TopSelect, EqualsAFullSort) {
  std::mt19937 gen(5);
  for (int round = 0; round < 300; ++round) {
    const int64_t n = 1 + gen() % 3000;
    std::vector<float> values(n);
    const int kinds = round % 3 == 0 ? 4 : 100000;  // many ties in a third of the rounds
    for (float& v : values) v = static_cast<float>(static_cast<int>(gen() % kinds) - kinds / 2);
    if (round % 5 == 0) values[gen() % n] = kNan;
    if (round % 5 == 1) values[gen() % n] = -kInf;
    std::vector<Candidate> want(n), got;
    for (int64_t i = 0; i < n; ++i) {
      want[i] = {std::isnan(values[i]) ? -kInf : values[i], static_cast<int32_t>(i)};
    }
    std::sort(want.begin(), want.end(), Before);
    const int64_t count = 1 + gen() % (round % 2 ? n + 10 : 20);
    SelectTop(values, count, got);
    ASSERT_EQ(static_cast<int64_t>(got.size()), std::min(count, n));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].id, want[i].id) << "round " << round << " place " << i;
      if (i < 5) {
        ASSERT_EQ(RankOf(values, got[i].id), i + 1);
      }
    }
  }
}

TEST(Sampler, VerySmallTemperatures) {
  const Row row = MakeRow({12.5f, 3.25f, 1.75f, -2.0f});
  for (float t : {1e-5f, 1e-38f, 1e-45f, 0.0f}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      SamplingParams p;
      p.temperature = t;
      p.seed = seed;
      EXPECT_EQ(One(Init(p), row), 0) << t;
    }
  }
}

TEST(Sampler, TopKBeyondTheVocabulary) {
  const Row row = MakeRow({1, 3, 2, 0});
  const std::map<uint32_t, std::vector<int32_t>> kept = {
      {1, {1}}, {2, {1, 2}}, {4, {0, 1, 2, 3}}, {5, {0, 1, 2, 3}}, {5000000, {0, 1, 2, 3}}, {0, {0, 1, 2, 3}}};
  for (const auto& [k, want] : kept) {
    std::map<int32_t, int> seen;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      SamplingParams p;
      p.top_k = k;
      p.seed = seed;
      ++seen[One(Init(p), row)];
    }
    std::vector<int32_t> ids;
    for (const auto& [id, n] : seen) ids.push_back(id);
    EXPECT_EQ(ids, want) << "top_k " << k;
  }
  // At or above the vocabulary: the very same draws as without.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SamplingParams p;
    p.seed = seed;
    const int32_t plain = One(Init(p), row);
    p.top_k = 4;
    EXPECT_EQ(One(Init(p), row), plain);
    p.top_k = 4000000000u;
    EXPECT_EQ(One(Init(p), row), plain);
  }
}

TEST(Sampler, TopKTiesKeepTheLowestIds) {
  const Row row = MakeRow({0, 5, 5, 5, 5, 1});
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SamplingParams p;
    p.top_k = 2;
    p.seed = seed;
    const int32_t id = One(Init(p), row);
    EXPECT_TRUE(id == 1 || id == 2) << id;
  }
}

TEST(Sampler, MinNewTokensBlocksEveryEndId) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{2, 90.0f}};
  SequenceInit init = Init(p);
  init.min_new_tokens = 6;
  init.end_ids = {2, 3};
  const Row row = MakeRow({1, 0, 2, 3});
  SamplerScratch scratch;
  Sampler sampler(init, 4);
  for (int k = 0; k < 6; ++k) EXPECT_EQ(sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id, 0);
  EXPECT_EQ(sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id, 2);
  // Rebuilt after a preemption it goes on where it was.
  init.tokens = {0, 0, 0, 0};
  EXPECT_EQ(One(init, row), 0);
  init.tokens = {0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(One(init, row), 2);
}

TEST(Sampler, DrawDependsOnSeedChoiceAndIndexOnly) {
  SamplingParams p;
  p.seed = 1234;
  p.temperature = 0.7f;
  const Row row = MakeRow(RandomLogits(512, 3, 1.0f));
  SamplerScratch scratch;
  Sampler whole(Init(p, {7}), 512);
  std::vector<int32_t> tokens = {7};
  std::vector<int32_t> ids;
  for (int k = 0; k < 24; ++k) {
    ids.push_back(whole.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id);
    // A sampler that meets the sequence now, with a scratch in another state, draws the same.
    SamplerScratch other;
    other.weights.assign(9, 3.0f);
    other.block_sums.assign(4, 1.0);
    Sampler rebuilt(Init(p, tokens, 1), 512);
    EXPECT_EQ(rebuilt.Next(row.logits, row.argmax, row.max, row.log_sum_exp, other).id, ids.back());
    tokens.push_back(ids.back());
  }
  SequenceInit second = Init(p, {7});
  second.choice = 1;
  Sampler other_choice(second, 512);
  std::vector<int32_t> ids1;
  for (int k = 0; k < 24; ++k) {
    ids1.push_back(other_choice.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch).id);
  }
  EXPECT_NE(ids, ids1);
}

TEST(Sampler, BannedTokensAreSafe) {
  const Row row = MakeRow({-kInf, 2, 1});
  SamplingParams greedy;
  greedy.temperature = 0;
  SequenceInit init = Init(greedy);
  init.logprobs = 3;
  SamplerScratch scratch;
  Sampler sampler(init, 3);
  const TokenInfo info = sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch);
  EXPECT_EQ(info.id, 1);
  ASSERT_EQ(info.top.size(), 3u);
  for (const TokenProb& t : info.top) EXPECT_FALSE(std::isnan(t.logprob));
  EXPECT_EQ(info.top[2].logprob, -kInf);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SamplingParams p;
    p.seed = seed;
    p.logit_bias = {{1, -kInf}};
    EXPECT_EQ(One(Init(p), row), 2);
  }
}

TEST(Sampler, RowsWithoutAnyPossibleTokenAreDefined) {
  for (const std::vector<float>& logits :
       {std::vector<float>{-kInf, -kInf, -kInf}, std::vector<float>{kNan, kNan, kNan}}) {
    for (float t : {0.0f, 1.0f}) {
      for (float top_p : {1.0f, 0.5f}) {
        for (uint32_t k : {0u, 2u}) {
          SamplingParams p;
          p.temperature = t;
          p.top_p = top_p;
          p.top_k = k;
          p.presence_penalty = 1;
          SequenceInit init = Init(p);
          init.logprobs = -1;
          EXPECT_EQ(One(init, MakeRow(logits)), 0);
          init.min_new_tokens = 2;
          init.end_ids = {0, 1, 1, 77, -5};
          EXPECT_EQ(One(init, MakeRow(logits)), 2);
        }
      }
    }
  }
  SamplingParams p;
  EXPECT_EQ(One(Init(p), MakeRow({kNan, 1, kNan, -200})), 1);
  EXPECT_EQ(One(Init(p), MakeRow({kNan, 1, kInf, 5})), 2);
}

TEST(Sampler, GreedyTiesAndPenalties) {
  SamplingParams p;
  p.temperature = 0;
  EXPECT_EQ(One(Init(p), MakeRow({1, 4, 4, 0})), 1);
  p.repetition_penalty = 2;  // 4 → 2 for id 1, which is in the prompt
  EXPECT_EQ(One(Init(p, {1}), MakeRow({1, 4, 4, 0})), 2);
  p.repetition_penalty = 1;
  p.presence_penalty = 1;  // output only: the prompt's token is not touched
  EXPECT_EQ(One(Init(p, {1}), MakeRow({1, 4, 3.5f, 0})), 1);
  EXPECT_EQ(One(Init(p, {0, 1}, 1), MakeRow({1, 4, 3.5f, 0})), 2);
  p.presence_penalty = 0;
  p.frequency_penalty = 0.3f;
  EXPECT_EQ(One(Init(p, {0, 1}, 1), MakeRow({1, 4, 3.5f, 0})), 1);
  EXPECT_EQ(One(Init(p, {0, 1, 1}, 1), MakeRow({1, 4, 3.5f, 0})), 2);
}

TEST(Sampler, ReportsTheModelsOwnDistribution) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{3, 50.0f}};
  SequenceInit init = Init(p);
  init.logprobs = 2;
  const Row row = MakeRow({1, 4, 4, 0.5f, 0.5f});
  SamplerScratch scratch;
  Sampler sampler(init, 5);
  const TokenInfo info = sampler.Next(row.logits, row.argmax, row.max, row.log_sum_exp, scratch);
  EXPECT_EQ(info.id, 3);
  EXPECT_EQ(info.rank, 4u);
  EXPECT_FLOAT_EQ(info.logprob, 0.5f - row.log_sum_exp);
  ASSERT_EQ(info.top.size(), 2u);
  EXPECT_EQ(info.top[0].id, 1);
  EXPECT_EQ(info.top[1].id, 2);
  const TokenInfo all = Sampler::Describe(row.logits, row.log_sum_exp, 4, -1, scratch);
  EXPECT_EQ(all.rank, 5u);
  ASSERT_EQ(all.top.size(), 5u);
  EXPECT_EQ(all.top[4].id, 4);
  EXPECT_EQ(Sampler::Describe(row.logits, row.log_sum_exp, 4, 1000, scratch).top.size(), 5u);
  EXPECT_TRUE(Sampler::Describe(row.logits, row.log_sum_exp, 4, 0, scratch).top.empty());
}

TEST(Sampler, ChiSquareAgainstExactProbabilities) {
  const std::vector<float> small = RandomLogits(12, 1, 1.5f);
  const std::vector<float> large = RandomLogits(700, 2, 2.0f);
  const std::vector<float> flat = RandomLogits(2500, 4, 0.3f);
  for (float top_p : {0.9f, 0.4f}) {
    SamplingParams p;
    p.top_p = top_p;
    p.min_p = top_p == 0.4f ? 0.5f : 0.0f;
    ExpectChiSquare(flat, p, 77);
  }
  const std::vector<float> ties = {2, 2, 2, 1, 1, 1, 0, 0, 2, 1};
  uint64_t seed = 100;
  for (const auto* logits : {&small, &large, &ties}) {
    for (float t : {1.0f, 0.6f, 1.7f}) {
      for (uint32_t k : {0u, 5u, 300u}) {
        for (float top_p : {1.0f, 0.9f, 0.3f}) {
          for (float min_p : {0.0f, 0.05f}) {
            if (logits == &large && (min_p > 0) != (t == 0.6f)) continue;  // half of the cases are enough
            SamplingParams p;
            p.temperature = t;
            p.top_k = k;
            p.top_p = top_p;
            p.min_p = min_p;
            SCOPED_TRACE(testing::Message()
                         << logits->size() << " t " << t << " k " << k << " p " << top_p << " min " << min_p);
            ExpectChiSquare(*logits, p, ++seed);
          }
        }
      }
    }
  }
}

TEST(Weights, NucleusEqualsTheSortedOne) {
  std::mt19937 gen(8);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> weights(1 + gen() % 4000);
    for (float& w : weights) w = static_cast<float>(gen() % (round % 2 ? 5 : 100000)) / 1000.0f;
    std::vector<Candidate> sorted, buffer;
    double total = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      sorted.push_back({weights[i], static_cast<int32_t>(i)});
      total += weights[i];
    }
    std::sort(sorted.begin(), sorted.end(), Before);
    // Targets between two running sums, so that rounding decides nothing.
    const double target = total * (0.05 + 0.9 * (gen() % 1000) / 1000) + 1e-5;
    double sum = 0;
    std::set<int32_t> want;
    for (size_t i = 0; i < sorted.size() && sum < target; ++i) {
      sum += sorted[i].value;
      if (sorted[i].value > 0) want.insert(sorted[i].id);
    }
    std::vector<double> sums;
    KeepNucleus(target, 0, weights, sums, buffer);
    std::set<int32_t> got;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) got.insert(static_cast<int32_t>(i));
    }
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST(Sampler, NeverDrawsAWeightlessToken) {
  std::vector<float> weights(5000, 0.0f);
  weights[1500] = 0.25f;
  weights[4100] = 0.5f;
  std::vector<double> sums(5);
  sums[1] = 0.25;
  sums[4] = 0.5;
  EXPECT_EQ(DrawById(weights, sums, 0.75, 0.0), 1500);
  EXPECT_EQ(DrawById(weights, sums, 0.75, 0.34), 4100);
  EXPECT_EQ(DrawById(weights, sums, 0.75, 0.9999999), 4100);
  EXPECT_EQ(DrawById(weights, sums, 0.7500001, 1 - 0x1.0p-53), 4100);
  EXPECT_EQ(DrawById(weights, sums, 0.0, 0.5), -1);
}

}  // namespace
}  // namespace moe
