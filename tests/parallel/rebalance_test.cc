#include "parallel/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>

namespace moe {
namespace {

using Loads = std::vector<uint64_t>;

// Rows per expert when each of `rows` picks an expert with probability ~ 1 / position^exponent, positions shuffled.
Loads ZipfLoads(int experts, double exponent, int rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> weights(experts);
  for (int i = 0; i < experts; ++i) weights[i] = std::pow(i + 1, -exponent);
  std::shuffle(weights.begin(), weights.end(), random);
  std::discrete_distribution<int> pick(weights.begin(), weights.end());
  Loads loads(experts);
  for (int i = 0; i < rows; ++i) ++loads[pick(random)];
  return loads;
}

LayerPlan Plan(const Loads& loads, int ranks, const RebalanceOptions& options = {},
               const ExpertHolders* present = nullptr) {
  const std::vector<Loads> layers{loads};
  std::vector<ExpertHolders> holders;
  if (present != nullptr) holders.push_back(*present);
  auto plans = RebalanceExperts(layers, ranks, options, holders);
  EXPECT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ(plans->size(), 1u);
  return std::move((*plans)[0]);
}

// Every expert somewhere, none twice on a rank (FromShares sees to both), slots within one of each other.
void ExpectSound(const LayerPlan& plan, int64_t slots) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  int64_t all = 0;
  for (int r = 0; r < plan.placement.num_ranks(); ++r) {
    const auto held = static_cast<int64_t>(plan.placement.ExpertsOf(r).size());
    least = std::min(least, held);
    most = std::max(most, held);
    all += held;
  }
  EXPECT_EQ(all, slots);
  EXPECT_LE(most - least, 1);
}

int64_t Sum(const std::vector<int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// EPLB as published (one node): greedy replicas, equal shares, heaviest first to the least loaded pack that has room.
// Busiest rank over the mean.
double PlainEplb(const Loads& loads, int ranks, int64_t slots) {
  std::vector<double> load(loads.begin(), loads.end());
  std::vector<int> replicas(load.size(), 1);
  for (auto s = static_cast<int64_t>(load.size()); s < slots; ++s) {
    size_t hottest = 0;
    for (size_t e = 1; e < load.size(); ++e) {
      if (load[e] / replicas[e] > load[hottest] / replicas[hottest]) hottest = e;
    }
    ++replicas[hottest];
  }
  std::vector<double> items;
  for (size_t e = 0; e < load.size(); ++e) items.insert(items.end(), replicas[e], load[e] / replicas[e]);
  std::sort(items.rbegin(), items.rend());
  std::vector<double> pack(ranks);
  std::vector<int64_t> room(ranks, slots / ranks);
  for (int64_t i = 0; i < slots % ranks; ++i) ++room[i];
  for (double item : items) {
    int best = -1;
    for (int r = 0; r < ranks; ++r) {
      if (room[r] > 0 && (best < 0 || pack[r] < pack[best])) best = r;
    }
    pack[best] += item;
    --room[best];
  }
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  return *std::max_element(pack.begin(), pack.end()) * ranks / total;
}

// The figure: with 25 % redundant slots the busiest rank has at most 1.1 of the mean wherever that is possible. Below
// three slots a rank the bound for "possible" is not tight (whole experts have to fit beside hot replicas): there the
// limit is 1.2, and about nine in ten are within 1.1.
TEST(Rebalance, ZipfLoadsBecomeEven) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kSeeds = 1;  // for the code's sake, not for the figure
#else
  constexpr int kSeeds = 6;
#endif
  std::printf(
      "worst of %d seeds, 25 %% redundant slots: linear / EPLB / ours (least possible); - = 1.1 is impossible\n",
      kSeeds);
  int possible = 0;
  int tight_missed = 0;
  int tight = 0;
  for (int experts : {32, 64, 128, 256, 384, 512}) {
    for (double exponent : {0.6, 0.8, 1.0, 1.2}) {
      std::string line;
      for (int ranks : {2, 3, 4, 8, 16, 24, 32, 48, 64}) {
        double linear = 0;
        double eplb = 0;
        double ours = 0;
        double least = 0;
        const int64_t slots = experts + experts / 4;
        for (uint32_t seed = 0; seed < kSeeds; ++seed) {
          const Loads loads = ZipfLoads(experts, exponent, 200 * experts, 100 * seed + static_cast<uint32_t>(ranks));
          const LayerPlan plan = Plan(loads, ranks);
          ExpectSound(plan, slots);
          EXPECT_NEAR(ExpectedImbalance(plan.placement, loads), plan.imbalance, 1e-4);
          EXPECT_GE(plan.imbalance, plan.least_imbalance * (1 - 1e-9));
          if (plan.least_imbalance > 1.1) continue;
          ++possible;
          if (slots >= 3 * ranks) {
            EXPECT_LE(plan.imbalance, 1.1)
                << experts << " experts, " << ranks << " ranks, exponent " << exponent << ", seed " << seed;
          } else {
            EXPECT_LE(plan.imbalance, 1.2)
                << experts << " experts, " << ranks << " ranks, exponent " << exponent << ", seed " << seed;
            ++tight;
            tight_missed += plan.imbalance > 1.1;
          }
          linear = std::max(linear, ExpectedImbalance(ExpertPlacement::Linear(experts, ranks), loads));
          eplb = std::max(eplb, PlainEplb(loads, ranks, slots));
          ours = std::max(ours, plan.imbalance);
          least = std::max(least, plan.least_imbalance);
        }
        char cell[96];
        if (ours == 0) {
          std::snprintf(cell, sizeof(cell), "  R=%d -", ranks);
        } else {
          std::snprintf(cell, sizeof(cell), "  R=%d %.2f/%.2f/%.3f(%.2f)", ranks, linear, eplb, ours, least);
        }
        line += cell;
      }
      std::printf("E=%d zipf %.1f:%s\n", experts, exponent, line.c_str());
    }
  }
  std::printf("%d loads where 1.1 may be possible; below three slots a rank %d of %d are above it\n", possible,
              tight_missed, tight);
  EXPECT_GT(possible, 160 * kSeeds);
  if (kSeeds > 1) {
    EXPECT_LE(tight_missed * 8, tight);
  }
}

TEST(Rebalance, IsQuick) {
  std::vector<Loads> loads;
  std::vector<ExpertHolders> linear;
  for (uint32_t l = 0; l < 61; ++l) {
    loads.push_back(ZipfLoads(256, 1.0, 50000, l));
    linear.push_back(HoldersOf(ExpertPlacement::Linear(256, 64)));
  }
  double best_ms = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(RebalanceExperts(loads, 64, {}, linear).ok());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    best_ms = std::min(best_ms, took.count());
  }
  std::printf("61 layers of 256 experts on 64 ranks: %.1f ms\n", best_ms);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(best_ms, 200);  // 20 to 40 on a quiet machine
#endif
}

TEST(Rebalance, TheSameLoadsGiveTheSamePlan) {
  const Loads loads = ZipfLoads(64, 1.2, 10000, 3);  // 64 experts on 32 ranks: annealing takes part
  const LayerPlan a = Plan(loads, 32);
  const LayerPlan b = Plan(loads, 32);
  EXPECT_EQ(HoldersOf(a.placement), HoldersOf(b.placement));
  for (int64_t e = 0; e < 64; ++e) {
    EXPECT_TRUE(std::ranges::equal(a.placement.SharesOf(e), b.placement.SharesOf(e))) << e;
  }
}

TEST(Rebalance, TiesGoToTheLowest) {
  // Equal loads, two redundant slots on four ranks: experts 0 and 1 get the replicas.
  RebalanceOptions options;
  options.redundant_share = 0.25;
  const LayerPlan plan = Plan(Loads(8, 100), 4, options);
  ExpectSound(plan, 10);
  for (int64_t e = 0; e < 8; ++e) EXPECT_EQ(plan.placement.RanksOf(e).size(), e < 2 ? 2u : 1u) << e;
}

// The example in EPLB's documentation: 12 experts in 4 groups, 16 slots on 8 ranks of 2 nodes. Not worse than
// the table that EPLB publishes for it.
TEST(Rebalance, GroupsStayOnNodes) {
  const std::vector<Loads> loads{{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                 {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
  const std::vector<std::vector<int>> published{{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                                {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
  RebalanceOptions options;
  options.redundant_share = 1.0 / 3;
  options.num_groups = 4;
  options.ranks_per_node = 4;
  const auto plans = RebalanceExperts(loads, 8, options, {});
  ASSERT_TRUE(plans.ok()) << plans.status();
  for (size_t l = 0; l < loads.size(); ++l) {
    ExpectSound((*plans)[l], 16);
    std::vector<int> groups_of_node(2);
    for (int group = 0; group < 4; ++group) {
      const int node = (*plans)[l].placement.RanksOf(3 * group)[0] / 4;
      ++groups_of_node[node];
      for (int e = 3 * group; e < 3 * group + 3; ++e) {
        for (int32_t rank : (*plans)[l].placement.RanksOf(e)) EXPECT_EQ(rank / 4, node) << "expert " << e;
      }
    }
    EXPECT_EQ(groups_of_node, (std::vector<int>{2, 2}));
    std::vector<int> replicas(12);
    for (int e : published[l]) ++replicas[e];
    std::vector<double> theirs(8);
    for (int slot = 0; slot < 16; ++slot) {
      const int e = published[l][slot];
      theirs[slot / 2] += static_cast<double>(loads[l][e]) / replicas[e];
    }
    const double total = std::accumulate(loads[l].begin(), loads[l].end(), 0.0);
    const double eplb = *std::max_element(theirs.begin(), theirs.end()) * 8 / total;
    std::printf("layer %zu: EPLB %.4f, ours %.4f\n", l, eplb, (*plans)[l].imbalance);
    EXPECT_LE((*plans)[l].imbalance, eplb);
  }
}

TEST(Rebalance, GroupsThatDoNotDivideAreIgnored) {
  RebalanceOptions options;
  options.num_groups = 4;
  options.ranks_per_node = 2;  // three nodes
  const Loads loads = ZipfLoads(32, 1.0, 10000, 1);
  EXPECT_EQ(HoldersOf(Plan(loads, 6, options).placement), HoldersOf(Plan(loads, 6).placement));
}

TEST(Rebalance, AnyNumberOfExpertsAndRanks) {
  for (int experts : {1, 2, 3, 7, 13, 60}) {
    for (int ranks : {1, 2, 3, 5, 8, 16}) {
      for (double share : {0.0, 0.25, 1.0, 100.0}) {
        RebalanceOptions options;
        options.redundant_share = share;
        const Loads loads = ZipfLoads(experts, 0.9, 1000, static_cast<uint32_t>(experts + ranks));
        const LayerPlan plan = Plan(loads, ranks, options);
        const auto slots = std::min<int64_t>(experts + static_cast<int64_t>(std::min<double>(share, ranks) * experts),
                                             int64_t{experts} * ranks);
        ExpectSound(plan, slots);
        if (slots == int64_t{experts} * ranks) {
          EXPECT_NEAR(plan.imbalance, 1, 1e-9) << "everything everywhere";
        }
        // And as a change of the linear placement.
        const ExpertHolders linear = HoldersOf(ExpertPlacement::Linear(experts, ranks));
        ExpectSound(Plan(loads, ranks, options, &linear), slots);
      }
    }
  }
}

TEST(Rebalance, NoLoadAndColdExperts) {
  ExpectSound(Plan(Loads(10, 0), 4), 12);
  Loads loads(16, 0);
  loads[5] = 1000;  // all rows to one expert
  const LayerPlan plan = Plan(loads, 4);
  ExpectSound(plan, 20);
  EXPECT_NEAR(plan.imbalance, 1, 1e-6) << "a replica on every rank";
}

TEST(Rebalance, ARedundantNumberPerRankAndABound) {
  const Loads loads = ZipfLoads(16, 1.0, 1000, 1);
  RebalanceOptions options;
  options.redundant_per_rank = 2;
  ExpectSound(Plan(loads, 4, options), 24);
  options.max_slots_per_rank = 5;
  ExpectSound(Plan(loads, 4, options), 20);
  options.max_slots_per_rank = 3;
  const std::vector<Loads> layers{loads};
  const Status status = RebalanceExperts(layers, 4, options, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("16 experts of a layer on 4 ranks that have memory for 3 each"), std::string::npos)
      << status;
}

TEST(Rebalance, BadSizesAreRefused) {
  const std::vector<Loads> loads{Loads(4, 1)};
  const std::vector<Loads> empty{Loads()};
  EXPECT_FALSE(RebalanceExperts(loads, 0, {}, {}).ok());
  EXPECT_FALSE(RebalanceExperts(empty, 2, {}, {}).ok());
  const std::vector<ExpertHolders> short_holders{ExpertHolders(3)};
  EXPECT_FALSE(RebalanceExperts(loads, 2, {}, short_holders).ok());
  const std::vector<ExpertHolders> stray{{{0}, {1}, {2}, {0}}};
  EXPECT_FALSE(RebalanceExperts(loads, 2, {}, stray).ok());
  const std::vector<ExpertHolders> two(2, ExpertHolders(4));
  EXPECT_FALSE(RebalanceExperts(loads, 2, {}, two).ok());
  RebalanceOptions options;
  options.redundant_share = -1;
  EXPECT_FALSE(RebalanceExperts(loads, 2, options, {}).ok());
}

// Remainders go round over the layers: no rank needs the memory of all of them.
TEST(Rebalance, MemoryIsEvenOverLayers) {
  const std::vector<Loads> loads(10, ZipfLoads(10, 0.8, 1000, 1));
  RebalanceOptions options;
  options.redundant_share = 0;
  const auto plans = RebalanceExperts(loads, 4, options, {});
  ASSERT_TRUE(plans.ok());
  std::vector<int64_t> held(4);
  for (const LayerPlan& plan : *plans) {
    for (int r = 0; r < 4; ++r) held[r] += static_cast<int64_t>(plan.placement.ExpertsOf(r).size());
  }
  EXPECT_EQ(held, (std::vector<int64_t>{25, 25, 25, 25}));
}

TEST(Rebalance, CopiesAreWhatTheRanksLack) {
  const Loads loads = ZipfLoads(32, 1.0, 5000, 7);
  const ExpertHolders present = HoldersOf(ExpertPlacement::Linear(32, 4));
  const LayerPlan plan = Plan(loads, 4, {}, &present);
  for (int32_t r = 0; r < 4; ++r) {
    int32_t lacking = 0;
    for (int32_t e : plan.placement.ExpertsOf(r)) lacking += e / 8 != r;
    EXPECT_EQ(plan.copies[r], lacking) << r;
  }
  EXPECT_EQ(Sum(Plan(loads, 4).copies), 40) << "nothing is there yet";
}

TEST(Rebalance, WhatNeedNotMoveStays) {
  for (int experts : {32, 64, 256}) {
    for (int ranks : {2, 4, 8}) {
      Loads loads = ZipfLoads(experts, 1.0, 200 * experts, static_cast<uint32_t>(experts + ranks));
      // From the linear placement not much more than the redundant slots is copied.
      const ExpertHolders linear = HoldersOf(ExpertPlacement::Linear(experts, ranks));
      const LayerPlan first = Plan(loads, ranks, {}, &linear);
      EXPECT_GE(Sum(first.copies), experts / 4);
      EXPECT_LE(Sum(first.copies), experts / 4 + 3 * experts / ranks);
      // The same loads again: nothing moves.
      const ExpertHolders held = HoldersOf(first.placement);
      const LayerPlan again = Plan(loads, ranks, {}, &held);
      EXPECT_EQ(Sum(again.copies), 0);
      EXPECT_LE(again.imbalance, 1.1);
      // Loads that drifted by up to 20 %: shares follow, few experts move.
      std::mt19937 random(1);
      for (uint64_t& load : loads) load = load * (80 + random() % 41) / 100;
      const LayerPlan drifted = Plan(loads, ranks, {}, &held);
      EXPECT_LE(Sum(drifted.copies), experts / 8) << experts << " experts on " << ranks;
      EXPECT_LE(drifted.imbalance, 1.1);
      // Any copy is allowed to cost nothing, so with no tolerance the best packing is as good or better.
      RebalanceOptions exact;
      exact.keep_within = 0;
      EXPECT_LE(Plan(loads, ranks, exact, &held).imbalance, drifted.imbalance + 1e-9);
    }
  }
}

TEST(Rebalance, ContentsGoToTheRanksThatHaveThem) {
  // The best packing for these loads, its ranks renamed: the names are given back, no expert is copied.
  const Loads loads = ZipfLoads(64, 1.0, 10000, 5);
  ExpertHolders renamed = HoldersOf(Plan(loads, 8).placement);
  for (auto& ranks : renamed) {
    for (int32_t& rank : ranks) rank = (3 * rank + 5) % 8;
  }
  RebalanceOptions exact;
  exact.keep_within = 0;
  EXPECT_EQ(Sum(Plan(loads, 8, exact, &renamed).copies), 0);
}

// A rank died: its experts that nobody else holds are read again, nothing else moves.
TEST(Rebalance, AfterALossOnlyTheLostIsCopied) {
  RebalanceOptions options;
  options.keep_within = std::numeric_limits<double>::infinity();
  options.max_slots_per_rank = 14;
  const Loads loads = ZipfLoads(32, 1.0, 5000, 9);
  const LayerPlan before = Plan(loads, 4, options);  // 40 replicas
  ExpertHolders left;                                // rank 3 is gone
  int64_t lost = 0;
  for (int64_t e = 0; e < 32; ++e) {
    auto& ranks = left.emplace_back();
    for (int32_t rank : before.placement.RanksOf(e)) {
      if (rank < 3) ranks.push_back(rank);
    }
    lost += ranks.empty();
  }
  ASSERT_GT(lost, 0);
  options.redundant_share = 0;  // no copies beyond what must be
  const LayerPlan after = Plan(loads, 3, options, &left);
  ExpectSound(after, 32);
  EXPECT_EQ(Sum(after.copies), lost);
}

}  // namespace
}  // namespace moe
