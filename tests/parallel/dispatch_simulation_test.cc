// Whole MoE layers over 1…64 ranks in one process: tokens, routing and experts are functions of ids, so that any number
// of ranks must give every token the bits that one rank gives it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "parallel/dispatcher.h"
#include "parallel/rebalance.h"
#include "tests/parallel/in_process_ranks.h"

namespace moe {
namespace {

constexpr int64_t kWidth = 5;
constexpr int64_t kRowBytes = kWidth * static_cast<int64_t>(sizeof(float));
using Row = std::array<float, kWidth>;

uint32_t Mix(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;
  h ^= h >> 15;
  h *= 0x2c1b3c6du;
  return h ^ (h >> 13);
}
float Unit(uint32_t h) {
  return static_cast<float>(h >> 8) * 0x1p-24f - 0.5f;
}

// The experts of (token, layer), top_k of them.
using Routing = std::function<int32_t(int64_t token, int64_t layer, int64_t slot)>;

struct Model {
  int64_t num_experts = 8;
  int64_t top_k = 2;
  int64_t num_layers = 3;
  Routing routing;
};

// Different experts for the slots of a token, uniformly.
Routing Uniform(int64_t num_experts) {
  return [num_experts](int64_t token, int64_t layer, int64_t slot) {
    const uint32_t h = Mix(static_cast<uint32_t>(token), static_cast<uint32_t>(layer), 77);
    return static_cast<int32_t>((h + static_cast<uint32_t>(slot)) % static_cast<uint32_t>(num_experts));
  };
}

// An expert: depends on every element of its row, rounds differently for each, is not linear.
Row Expert(int32_t expert, int64_t layer, const std::byte* row) {
  Row x;
  std::memcpy(x.data(), row, kRowBytes);
  Row y;
  for (int64_t i = 0; i < kWidth; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < kWidth; ++j) {
      sum += x[j] * Unit(Mix(static_cast<uint32_t>(expert), static_cast<uint32_t>(layer),
                             static_cast<uint32_t>(kWidth * i + j)));
    }
    y[i] = sum / (1 + std::abs(sum));
  }
  return y;
}

// The layers for the tokens of one rank, in place.
void RunLayers(Dispatcher& dispatcher, const Model& model, std::span<const ExpertPlacement> placements,
               const std::vector<int64_t>& tokens, std::vector<Row>* rows) {
  const auto num_rows = static_cast<int64_t>(tokens.size());
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    std::vector<int32_t> experts;
    for (int64_t token : tokens) {
      for (int64_t s = 0; s < model.top_k; ++s) experts.push_back(model.routing(token, layer, s));
    }
    auto work = dispatcher.Dispatch(placements[layer], reinterpret_cast<const std::byte*>(rows->data()), num_rows,
                                    kRowBytes, experts, model.top_k, layer);
    ASSERT_TRUE(work.ok()) << work.status();
    std::vector<Row> results(work->rows.size());
    for (const Dispatcher::Group& group : work->groups) {
      for (int32_t r = group.begin; r < group.end; ++r) results[r] = Expert(group.expert, layer, work->rows[r]);
    }
    auto back = dispatcher.Return(reinterpret_cast<const std::byte*>(results.data()));
    ASSERT_TRUE(back.ok()) << back.status();
    for (int64_t t = 0; t < num_rows; ++t) {
      Row sum = (*rows)[t];  // residual
      for (int64_t s = 0; s < model.top_k; ++s) {
        Row y;
        std::memcpy(y.data(), (*back)[t * model.top_k + s], kRowBytes);
        const float weight = Unit(Mix(static_cast<uint32_t>(tokens[t]), static_cast<uint32_t>(s), 5));
        for (int64_t i = 0; i < kWidth; ++i) sum[i] += weight * y[i];
      }
      (*rows)[t] = sum;
    }
  }
}

// Which rank has a token.
using Owner = std::function<int(int64_t token, int ranks)>;
int InTurn(int64_t token, int ranks) {
  return static_cast<int>(token % ranks);
}
int AllOnTheLast(int64_t, int ranks) {
  return ranks - 1;
}
int OnEveryOther(int64_t token, int ranks) {
  return static_cast<int>(2 * token % ranks) & ~1;
}

std::vector<Row> FirstRows(const std::vector<int64_t>& tokens) {
  std::vector<Row> rows;
  for (int64_t token : tokens) {
    Row row;
    for (int64_t i = 0; i < kWidth; ++i) row[i] = Unit(Mix(static_cast<uint32_t>(token), static_cast<uint32_t>(i), 1));
    rows.push_back(row);
  }
  return rows;
}

struct Outcome {
  std::vector<Row> rows;                       // in order of the tokens
  std::vector<Dispatcher::Counters> counters;  // [ranks]
  std::vector<uint64_t> computed_last;         // [ranks] rows computed in the last step
};

// All layers, `steps` times over.
Outcome Simulate(const Model& model, int ranks, std::span<const ExpertPlacement> placements, int64_t num_tokens,
                 const Owner& owner, int steps = 1) {
  Outcome outcome{std::vector<Row>(num_tokens), std::vector<Dispatcher::Counters>(ranks), std::vector<uint64_t>(ranks)};
  OnRanks(ranks, [&](Communicator& comm) {
    std::vector<int64_t> tokens;
    for (int64_t t = 0; t < num_tokens; ++t) {
      if (owner(t, ranks) == comm.rank()) tokens.push_back(t);
    }
    std::vector<Row> rows = FirstRows(tokens);
    Dispatcher dispatcher(&comm);
    uint64_t before = 0;
    for (int step = 0; step < steps; ++step) {
      before = dispatcher.counters().rows_computed;
      RunLayers(dispatcher, model, placements, tokens, &rows);
    }
    for (size_t i = 0; i < tokens.size(); ++i) outcome.rows[tokens[i]] = rows[i];
    outcome.counters[comm.rank()] = dispatcher.counters();
    outcome.computed_last[comm.rank()] = dispatcher.counters().rows_computed - before;
  });
  return outcome;
}

void ExpectSameBits(const std::vector<Row>& a, const std::vector<Row>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    for (int64_t i = 0; i < kWidth; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(a[t][i]), std::bit_cast<uint32_t>(b[t][i])) << what << ", token " << t;
    }
  }
}

std::vector<Row> OnOneRank(const Model& model, int64_t num_tokens, int steps = 1) {
  const std::vector<ExpertPlacement> one(model.num_layers, ExpertPlacement::Linear(model.num_experts, 1));
  return Simulate(model, 1, one, num_tokens, InTurn, steps).rows;
}

ExpertPlacement RandomMap(int64_t num_experts, int ranks, uint32_t seed, int most_replicas) {
  std::mt19937 random(seed);
  std::vector<std::vector<int32_t>> map(num_experts);
  for (auto& holders : map) {
    const auto replicas = static_cast<size_t>(1 + random() % std::min(most_replicas, ranks));
    while (holders.size() < replicas) {
      const auto rank = static_cast<int32_t>(random() % ranks);
      if (std::find(holders.begin(), holders.end(), rank) == holders.end()) holders.push_back(rank);
    }
  }
  return *ExpertPlacement::FromMap(std::move(map), ranks);
}

// A placement per layer of each kind; the last ones are made for the routing.
std::vector<std::pair<std::string, std::vector<ExpertPlacement>>> Placements(const Model& model, int ranks,
                                                                             int64_t num_tokens) {
  std::vector<std::pair<std::string, std::vector<ExpertPlacement>>> kinds;
  const int64_t experts = model.num_experts;
  kinds.emplace_back("linear", std::vector(model.num_layers, ExpertPlacement::Linear(experts, ranks)));
  kinds.emplace_back("round-robin", std::vector(model.num_layers, ExpertPlacement::RoundRobin(experts, ranks)));
  std::vector<ExpertPlacement> maps;
  std::vector<ExpertPlacement> replicas;
  std::vector<std::vector<uint64_t>> loads(model.num_layers, std::vector<uint64_t>(experts));
  for (int64_t l = 0; l < model.num_layers; ++l) {
    maps.push_back(RandomMap(experts, ranks, static_cast<uint32_t>(l + 1), 1));
    replicas.push_back(RandomMap(experts, ranks, static_cast<uint32_t>(l + 9), 4));
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t s = 0; s < model.top_k; ++s) ++loads[l][model.routing(t, l, s)];
    }
  }
  kinds.emplace_back("random map", maps);
  kinds.emplace_back("random replicas", replicas);
  const auto plans = RebalanceExperts(loads, ranks, {}, {});
  EXPECT_TRUE(plans.ok()) << plans.status();
  std::vector<ExpertPlacement> balanced;
  for (const LayerPlan& plan : *plans) balanced.push_back(plan.placement);
  kinds.emplace_back("balanced", balanced);
  return kinds;
}

void ExpectAnyRanksGiveTheBitsOfOne(const Model& model, int64_t num_tokens, const std::vector<int>& rank_counts) {
  const std::vector<Row> expected = OnOneRank(model, num_tokens);
  for (int ranks : rank_counts) {
    for (const auto& [name, placements] : Placements(model, ranks, num_tokens)) {
      for (const Owner& owner : {Owner(InTurn), Owner(AllOnTheLast), Owner(OnEveryOther)}) {
        ExpectSameBits(Simulate(model, ranks, placements, num_tokens, owner).rows, expected,
                       Cat(name, " on ", ranks, " ranks"));
      }
    }
  }
}

TEST(DispatchSimulation, ExpertsThatDivideAndThatDoNot) {
  ExpectAnyRanksGiveTheBitsOfOne({32, 4, 3, Uniform(32)}, 70, {2, 4, 8, 16});
  ExpectAnyRanksGiveTheBitsOfOne({13, 3, 2, Uniform(13)}, 41, {2, 3, 5, 8});
}

TEST(DispatchSimulation, ManyRanks) {
  ExpectAnyRanksGiveTheBitsOfOne({128, 8, 2, Uniform(128)}, 200, {33, 64});
}

TEST(DispatchSimulation, FewerExpertsThanRanks) {
  ExpectAnyRanksGiveTheBitsOfOne({3, 2, 2, Uniform(3)}, 30, {4, 8, 24});
  ExpectAnyRanksGiveTheBitsOfOne({1, 1, 2, Uniform(1)}, 9, {2, 7});
}

// Every token asks for more experts than a rank holds; then for all there are.
TEST(DispatchSimulation, MoreSlotsThanLocalExperts) {
  ExpectAnyRanksGiveTheBitsOfOne({16, 8, 2, Uniform(16)}, 20, {4, 8, 16});
  ExpectAnyRanksGiveTheBitsOfOne({6, 6, 2, Uniform(6)}, 20, {3, 4});
}

TEST(DispatchSimulation, AllTokensToOneExpert) {
  const Routing to_five = [](int64_t, int64_t, int64_t) { return 5; };
  ExpectAnyRanksGiveTheBitsOfOne({8, 1, 2, to_five}, 50, {2, 3, 8, 16});
}

TEST(DispatchSimulation, NoTokensAtAll) {
  const std::vector<ExpertPlacement> placements(3, ExpertPlacement::Linear(8, 4));
  const Outcome outcome = Simulate({8, 2, 3, Uniform(8)}, 4, placements, 0, InTurn);
  for (const auto& mine : outcome.counters) EXPECT_EQ(mine.exchanges, 9u);
}

// A field report: four ranks, eight experts, all tokens to experts 0 and 1 of rank 0; a batch of one token, and ranks
// idle for 100 steps. All ranks take part in every exchange and the bits are those of one rank.
TEST(DispatchSimulation, RanksWithoutTokensTakePart) {
  const Model model{8, 2, 2, [](int64_t, int64_t, int64_t slot) { return static_cast<int32_t>(slot); }};
  const std::vector<ExpertPlacement> placements(2, ExpertPlacement::Linear(8, 4));
  for (const auto& [tokens, steps] : {std::pair<int64_t, int>{1, 1}, {6, 100}}) {
    for (int busy : {0, 2}) {
      const auto [rows, counters, last] = Simulate(
          model, 4, placements, tokens, [busy](int64_t, int) { return busy; }, steps);
      ExpectSameBits(rows, OnOneRank(model, tokens, steps), Cat("tokens on rank ", busy));
      for (int r = 0; r < 4; ++r) {
        EXPECT_EQ(counters[r].exchanges, static_cast<uint64_t>(3 * 2 * steps)) << r;
        EXPECT_EQ(counters[r].rows_computed, static_cast<uint64_t>(r == 0 ? 2 * 2 * tokens * steps : 0)) << r;
        EXPECT_EQ(counters[r].slots, static_cast<uint64_t>(r == busy ? 2 * 2 * tokens * steps : 0)) << r;
      }
    }
  }
}

// What the balancer expects is what the ranks get, whoever has the tokens: equally many, unequal numbers, one rank all.
TEST(DispatchSimulation, RanksGetTheLoadThatTheBalancerExpects) {
  constexpr int64_t kExperts = 64;
  constexpr int64_t kTokens = 4096;
  std::mt19937 random(3);
  std::vector<double> weights(kExperts);
  for (int64_t i = 0; i < kExperts; ++i) weights[i] = 1.0 / static_cast<double>(i + 1);
  std::shuffle(weights.begin(), weights.end(), random);
  std::discrete_distribution<int32_t> pick(weights.begin(), weights.end());
  std::vector<int32_t> chosen(kTokens * 4);
  for (int32_t& expert : chosen) expert = pick(random);
  const Model model{kExperts, 4, 2, [&](int64_t t, int64_t, int64_t s) { return chosen[4 * t + s]; }};
  std::vector<uint64_t> load(kExperts);
  for (int32_t expert : chosen) ++load[expert];
  const std::vector<Row> expected = OnOneRank(model, kTokens, 2);
  for (int ranks : {4, 8}) {
    const std::vector<std::vector<uint64_t>> loads(2, load);
    const auto plans = RebalanceExperts(loads, ranks, {}, {});
    ASSERT_TRUE(plans.ok()) << plans.status();
    const std::vector<ExpertPlacement> placements{(*plans)[0].placement, (*plans)[1].placement};
    const std::vector<ExpertPlacement> linear(2, ExpertPlacement::Linear(kExperts, ranks));
    const Owner uneven = [](int64_t t, int n) {  // half to rank 0, a quarter to rank 1, …
      return std::min(std::countr_one(static_cast<uint32_t>(t)), n - 1);
    };
    for (const auto& [name, owner] :
         {std::pair<const char*, Owner>{"even", InTurn}, {"uneven", uneven}, {"one rank", AllOnTheLast}}) {
      const auto busiest = [&, &owner = owner, name = name](const std::vector<ExpertPlacement>& where) {
        // Two steps: the first layer call does not know yet who has the tokens.
        const Outcome outcome = Simulate(model, ranks, where, kTokens, owner, 2);
        ExpectSameBits(outcome.rows, expected, name);
        const auto& rows = outcome.computed_last;
        const double sum = static_cast<double>(std::accumulate(rows.begin(), rows.end(), uint64_t{0}));
        return static_cast<double>(*std::max_element(rows.begin(), rows.end())) * ranks / sum;
      };
      const double before = busiest(linear);
      const double after = busiest(placements);
      std::printf("%d ranks, tokens %s: imbalance %.3f, balanced %.3f (expected %.3f)\n", ranks, name, before, after,
                  (*plans)[0].imbalance);
      EXPECT_LE(after, 1.1);
      // Rounding: less than two rows a sender and replica of a layer call.
      EXPECT_NEAR(after, (*plans)[0].imbalance, 0.06);
    }
  }
}

}  // namespace
}  // namespace moe
