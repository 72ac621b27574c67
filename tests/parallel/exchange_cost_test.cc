// The cost model against the Dispatcher's counters, with 2…64 ranks in one process.
#include "parallel/exchange_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "parallel/dispatcher.h"
#include "tests/parallel/in_process_ranks.h"

namespace moe {
namespace {

// [rows, top_k] different experts a row, uniformly random.
std::vector<int32_t> UniformRouting(std::mt19937& random, int64_t rows, int64_t top_k, int64_t num_experts) {
  std::vector<int32_t> experts;
  for (int64_t t = 0; t < rows; ++t) {
    std::set<int32_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < top_k) chosen.insert(static_cast<int32_t>(random() % num_experts));
    experts.insert(experts.end(), chosen.begin(), chosen.end());
  }
  return experts;
}

TEST(ExchangeCost, FormulasAreTheCounters) {
  constexpr int64_t kRowBytes = 24;
  constexpr int kCalls = 4;
  for (const ExchangeShape& shape : {ExchangeShape{2, 32, 4, kRowBytes, 64}, ExchangeShape{4, 64, 8, kRowBytes, 64},
                                     ExchangeShape{5, 64, 6, kRowBytes, 64}, ExchangeShape{8, 256, 8, kRowBytes, 64},
                                     ExchangeShape{16, 128, 1, kRowBytes, 64}, ExchangeShape{32, 256, 8, kRowBytes, 32},
                                     ExchangeShape{64, 256, 8, kRowBytes, 32}}) {
    const ExpertPlacement placement = ExpertPlacement::Linear(shape.num_experts, shape.num_ranks);
    std::vector<Dispatcher::Counters> counters(shape.num_ranks);
    std::atomic<uint64_t> combine_bytes = 0;
    OnRanks(shape.num_ranks, [&](Communicator& comm) {
      Dispatcher dispatcher(&comm);
      std::mt19937 random(static_cast<uint32_t>(comm.rank() + 1));
      uint64_t rows = 0;
      uint64_t slots = 0;
      ExchangeBytes bytes;
      for (int call = 0; call < kCalls; ++call) {
        const auto experts = UniformRouting(random, shape.rows_per_rank, shape.top_k, shape.num_experts);
        uint64_t rows_now = 0;
        uint64_t slots_now = 0;
        for (int64_t t = 0; t < shape.rows_per_rank; ++t) {
          std::set<int32_t> touched;
          for (int64_t s = 0; s < shape.top_k; ++s) {
            const int32_t rank = placement.RanksOf(experts[t * shape.top_k + s])[0];
            slots_now += rank != comm.rank();
            touched.insert(rank);
          }
          touched.erase(comm.rank());
          rows_now += touched.size();
        }
        const ExchangeBytes now = BytesOf(shape.num_ranks, kRowBytes, rows_now, slots_now);
        bytes.counts += now.counts;
        bytes.dispatch += now.dispatch;
        bytes.combine += now.combine;
        rows += rows_now;
        slots += slots_now;

        const std::vector<std::byte> data(shape.rows_per_rank * kRowBytes);
        auto work =
            dispatcher.Dispatch(placement, data.data(), shape.rows_per_rank, kRowBytes, experts, shape.top_k, 0);
        ASSERT_TRUE(work.ok()) << work.status();
        const std::vector<std::byte> results(work->rows.size() * kRowBytes);
        ASSERT_TRUE(dispatcher.Return(results.data()).ok());
      }
      const Dispatcher::Counters& mine = dispatcher.counters();
      EXPECT_EQ(mine.rows_sent, rows);
      EXPECT_EQ(mine.slots_sent, slots);
      EXPECT_EQ(mine.slots, static_cast<uint64_t>(kCalls * shape.rows_per_rank * shape.top_k));
      EXPECT_EQ(mine.count_bytes, bytes.counts);
      EXPECT_EQ(mine.dispatch_bytes, bytes.dispatch);
      // What a rank sends back is for the others' slots; what it gets back is checked over all ranks below.
      EXPECT_EQ(mine.combine_bytes, (mine.rows_computed - (mine.slots - mine.slots_sent)) * kRowBytes);
      EXPECT_EQ(dispatcher.bytes_sent(), mine.dispatch_bytes + mine.combine_bytes);
      counters[comm.rank()] = mine;
      combine_bytes += bytes.combine;
    });

    const ExchangeCost expected = ExpectedExchange(shape);
    const double tokens = static_cast<double>(kCalls * shape.rows_per_rank) * shape.num_ranks;
    double rows = 0;
    double slots = 0;
    double bytes = 0;
    double computed = 0;
    uint64_t sent_back = 0;
    for (const auto& mine : counters) {
      rows += static_cast<double>(mine.rows_sent) / tokens;
      slots += static_cast<double>(mine.slots_sent) / tokens;
      bytes += static_cast<double>(mine.count_bytes + mine.dispatch_bytes + mine.combine_bytes) / tokens;
      computed += static_cast<double>(mine.rows_computed);
      sent_back += mine.combine_bytes;
      EXPECT_EQ(mine.exchanges, static_cast<uint64_t>(kCalls * expected.exchanges));
    }
    EXPECT_EQ(sent_back, combine_bytes);
    EXPECT_EQ(computed, tokens * static_cast<double>(shape.top_k)) << "every slot is computed once";
    // Tokens are independent and each has between 0 and k rows: Hoeffding's bound, exceeded once in 10^9.
    const double slack = static_cast<double>(shape.top_k) * std::sqrt(std::log(2e9) / (2 * tokens));
    EXPECT_NEAR(rows, expected.rows, slack) << shape.num_ranks << " ranks";
    EXPECT_NEAR(slots, expected.slots, slack) << shape.num_ranks << " ranks";
    EXPECT_NEAR(bytes, expected.bytes, slack * (2 * kRowBytes + 8)) << shape.num_ranks << " ranks";
    std::printf("%2d ranks, %3ld experts, top %ld: rows %.3f (model %.3f), slots %.3f (%.3f), bytes %.1f (%.1f)\n",
                shape.num_ranks, static_cast<long>(shape.num_experts), static_cast<long>(shape.top_k), rows,
                expected.rows, slots, expected.slots, bytes, expected.bytes);
  }
}

// Imbalance by chance, over many steps (counting alone, no threads), and where the experts do not divide.
TEST(ExchangeCost, ImbalanceByChance) {
  std::mt19937 random(1);
  for (const ExchangeShape& shape :
       {ExchangeShape{4, 64, 8, 1, 32}, ExchangeShape{8, 256, 8, 1, 64}, ExchangeShape{64, 256, 8, 1, 64},
        ExchangeShape{64, 256, 1, 1, 16}, ExchangeShape{5, 64, 8, 1, 1000}}) {
    const ExpertPlacement placement = ExpertPlacement::Linear(shape.num_experts, shape.num_ranks);
    const int steps = 20;
    double measured = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<double> load(shape.num_ranks);
      for (int32_t e : UniformRouting(random, shape.rows_per_rank * shape.num_ranks, shape.top_k, shape.num_experts)) {
        ++load[placement.RanksOf(e)[0]];
      }
      measured +=
          *std::max_element(load.begin(), load.end()) / static_cast<double>(shape.rows_per_rank * shape.top_k) / steps;
    }
    const double model = ExpectedExchange(shape).imbalance;
    EXPECT_NEAR(measured - 1, model - 1, 0.25 * (model - 1)) << shape.num_ranks << " ranks";
    std::printf("%2d ranks, %ld tokens each: imbalance %.3f (model %.3f)\n", shape.num_ranks,
                static_cast<long>(shape.rows_per_rank), measured, model);
  }
}

TEST(ExchangeCost, OneRankCostsNothing) {
  const ExchangeCost cost = ExpectedExchange({1, 64, 8, 4096, 32});
  EXPECT_EQ(cost.bytes, 0);
  EXPECT_EQ(cost.exchanges, 0);
  EXPECT_EQ(cost.imbalance, 1);
}

TEST(ExchangeCost, TheReadmeHasTheModelsTable) {
  std::string table =
      "| ranks | rows sent | slots sent | bytes | of these counts | least bytes | messages a rank | imbalance |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (int ranks : {8, 16, 32, 64, 128, 256}) {
    const ExchangeCost cost = ExpectedExchange({ranks, 256, 8, 4096, 64});
    const double counts = static_cast<double>(BytesOf(ranks, 0, 0, 0).counts) / 64;
    char line[160];
    std::snprintf(line, sizeof(line), "| %d | %.2f | %.2f | %.0f | %.0f | %.0f | %ld | %.2f |\n", ranks, cost.rows,
                  cost.slots, cost.bytes, counts, cost.least_bytes, static_cast<long>(cost.messages), cost.imbalance);
    table += line;
  }
  std::ifstream file(std::string(MOE_SOURCE_DIR) + "/parallel/README.md");
  std::stringstream readme;
  readme << file.rdbuf();
  EXPECT_NE(readme.str().find(table), std::string::npos) << "put this into parallel/README.md:\n" << table;
}

}  // namespace
}  // namespace moe
