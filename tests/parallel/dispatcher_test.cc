// Dispatcher against the definition: with experts that add a known amount to their row, the row of (token, slot) must
// come back with the amount of exactly its expert, whatever the ranks, the placement and the routing.
#include "parallel/dispatcher.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "tests/parallel/groups.h"

namespace moe {
namespace {

constexpr int64_t kWidth = 3;
constexpr int64_t kRowBytes = kWidth * static_cast<int64_t>(sizeof(float));

float Load(const std::byte* row, int64_t i) {
  float v;
  std::memcpy(&v, row + i * static_cast<int64_t>(sizeof(float)), sizeof(v));
  return v;
}

// One layer call on one rank; checks the rows that come back.
void LayerCall(Dispatcher& dispatcher, Communicator& comm, const ExpertPlacement& placement,
               const std::vector<int32_t>& experts, int64_t top_k, int64_t most_rows = 0) {
  const auto num_rows = static_cast<int64_t>(experts.size()) / top_k;
  std::vector<float> rows;
  for (int64_t t = 0; t < num_rows; ++t) {
    for (int64_t i = 0; i < kWidth; ++i) rows.push_back(static_cast<float>(1000 * comm.rank() + 10 * t + i));
  }
  auto work = dispatcher.Dispatch(placement, reinterpret_cast<const std::byte*>(rows.data()), num_rows, kRowBytes,
                                  experts, top_k, 0, most_rows);
  ASSERT_TRUE(work.ok()) << work.status();
  std::vector<float> results(work->rows.size() * kWidth);
  size_t covered = 0;
  for (const Dispatcher::Group& group : work->groups) {
    ASSERT_LT(group.begin, group.end) << "no empty groups";
    ASSERT_EQ(static_cast<size_t>(group.begin), covered) << "groups follow each other";
    covered = group.end;
    const auto holders = placement.RanksOf(group.expert);
    ASSERT_NE(std::find(holders.begin(), holders.end(), comm.rank()), holders.end()) << "not an expert of this rank";
    for (int32_t r = group.begin; r < group.end; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) {
        results[r * kWidth + i] = Load(work->rows[r], i) + 0.001f * static_cast<float>(group.expert);
      }
    }
  }
  ASSERT_EQ(covered, work->rows.size());
  auto back = dispatcher.Return(reinterpret_cast<const std::byte*>(results.data()));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), experts.size());
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const float row = rows[(slot / top_k) * kWidth + i];
      ASSERT_EQ(Load((*back)[slot], i), row + 0.001f * static_cast<float>(experts[slot]));
    }
  }
}

class DispatcherTest : public testing::TestWithParam<Transport> {
 protected:
  void RunOn(int ranks, const std::function<void(int rank, Dispatcher&, Communicator&)>& body) {
    auto group = MakeGroup(GetParam(), ranks, std::chrono::seconds(60));
    for (auto& rank : group) ASSERT_NE(rank, nullptr);
    OnThreads(ranks, [&](int rank) {
      Dispatcher dispatcher(group[rank].get());
      body(rank, dispatcher, *group[rank]);
    });
    Destroy(group);
  }
};

INSTANTIATE_TEST_SUITE_P(Each, DispatcherTest, testing::ValuesIn(Transports()), NameOfTransport);

TEST_P(DispatcherTest, RandomRoutingsOverRanksAndPlacements) {
  constexpr int64_t kExperts = 13;  // divisible by no number of ranks
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    std::vector<ExpertPlacement> placements{ExpertPlacement::Linear(kExperts, ranks),
                                            ExpertPlacement::RoundRobin(kExperts, ranks)};
    std::vector<std::vector<int32_t>> replicas;
    for (int64_t e = 0; e < kExperts; ++e) {
      replicas.push_back({static_cast<int32_t>(e % ranks)});
      if (ranks > 1 && e % 3 == 0) replicas.back().push_back(static_cast<int32_t>((e + 1) % ranks));
    }
    placements.push_back(*ExpertPlacement::FromMap(replicas, ranks));
    RunOn(ranks, [&](int rank, Dispatcher& dispatcher, Communicator& comm) {
      std::mt19937 random(rank);
      for (int call = 0; call < 30; ++call) {
        const int64_t top_k = 1 + call % 4;
        const int64_t rows = random() % 9;  // 0 among them: an idle rank
        std::vector<int32_t> experts;
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t s = 0; s < top_k; ++s) experts.push_back(static_cast<int32_t>((random() + s) % kExperts));
        }
        // Padded, exact, and padded with parts that are too large for it.
        const int64_t most_rows = std::array<int64_t, 3>{8, 0, 100'000}[call / 3 % 3];
        LayerCall(dispatcher, comm, placements[call % placements.size()], experts, top_k, most_rows);
        EXPECT_EQ(dispatcher.counters().count_bytes > 0, ranks > 1 && call >= 3) << "padded ones send no counts";
      }
    });
  }
}

// All tokens to the experts of one rank; the others have nothing to compute (k larger than a rank's experts, too).
TEST_P(DispatcherTest, AllTokensToOneRank) {
  RunOn(4, [](int rank, Dispatcher& dispatcher, Communicator& comm) {
    const ExpertPlacement placement = ExpertPlacement::Linear(8, 4);
    LayerCall(dispatcher, comm, placement, {0, 1, 1, 0, 0, 1}, 2);
    LayerCall(dispatcher, comm, placement, rank == 2 ? std::vector<int32_t>{0, 1, 7, 6} : std::vector<int32_t>{}, 4);
  });
}

TEST_P(DispatcherTest, ARowIsSentOnceToEachRank) {
  RunOn(2, [](int rank, Dispatcher& dispatcher, Communicator& comm) {
    const ExpertPlacement placement = ExpertPlacement::Linear(8, 2);
    // Rank 0 sends one row for three experts of rank 1, and gets three rows back.
    LayerCall(dispatcher, comm, placement, rank == 0 ? std::vector<int32_t>{4, 5, 6} : std::vector<int32_t>{}, 3);
    const uint64_t row = kRowBytes;
    EXPECT_EQ(dispatcher.bytes_sent(), rank == 0 ? row + 3 * 2 * sizeof(int32_t) : 3 * row);
  });
}

TEST_P(DispatcherTest, MoreRowsThanAnnouncedAreAnError) {
  RunOn(2, [](int, Dispatcher& dispatcher, Communicator& comm) {
    const ExpertPlacement placement = ExpertPlacement::Linear(8, 2);
    const std::vector<float> rows(3 * kWidth);
    const std::vector<int32_t> experts{0, 4, 5};
    const auto work =
        dispatcher.Dispatch(placement, reinterpret_cast<const std::byte*>(rows.data()), 3, kRowBytes, experts, 1, 0, 2);
    EXPECT_EQ(work.status().code(), absl::StatusCode::kInternal);
    comm.Abort("over");
  });
}

// A peer whose every exchange carries the bytes given.
class RoguePeer : public Communicator {
 public:
  explicit RoguePeer(std::vector<std::vector<int32_t>> sends) : sends_(std::move(sends)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status AllToAllV(std::span<const std::span<const std::byte>>, std::span<const std::span<std::byte>> receive,
                   const ExchangeLabel&) override {
    const std::vector<int32_t>& bytes = sends_[next_++];
    EXPECT_EQ(receive[1].size(), bytes.size() * sizeof(int32_t));
    std::memcpy(receive[1].data(), bytes.data(), receive[1].size());
    return absl::OkStatus();
  }
  Status AllGather(std::span<const int32_t>, std::span<int32_t>, const ExchangeLabel&) override {
    return absl::OkStatus();
  }
  Status Broadcast(std::span<std::byte>, int, const ExchangeLabel&) override { return absl::OkStatus(); }
  Status Barrier(const ExchangeLabel&) override { return absl::OkStatus(); }
  void Abort(const std::string&) override {}

 private:
  std::vector<std::vector<int32_t>> sends_;
  size_t next_ = 0;
};

TEST(Dispatcher, APeersNonsenseIsAnError) {
  const ExpertPlacement placement = ExpertPlacement::Linear(4, 2);  // rank 0 has experts 0 and 1
  const std::vector<int32_t> row(kWidth);
  const auto answer = [&](std::vector<int32_t> counts, int32_t index, int32_t expert) {
    std::vector<int32_t> rows = row;
    rows.push_back(index);
    rows.push_back(expert);
    RoguePeer peer({std::move(counts), rows});
    Dispatcher dispatcher(&peer);
    return dispatcher.Dispatch(placement, nullptr, 0, kRowBytes, {}, 1, 3).status();
  };
  EXPECT_TRUE(answer({1, 1, 1}, 0, 1).ok());
  EXPECT_EQ(answer({1, -1, 1}, 0, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer({1, 1, 1}, 1, 1).code(), absl::StatusCode::kDataLoss) << "no such row";
  EXPECT_EQ(answer({1, 1, 1}, -1, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer({1, 1, 1}, 0, 4).code(), absl::StatusCode::kDataLoss) << "no such expert";
  const Status status = answer({1, 1, 1}, 0, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "an expert of the other rank";
  EXPECT_EQ(status.message(), "rank 1 asked rank 0 for expert 2 of row 0 of 1 in layer 3");
}

TEST(Dispatcher, APeersNonsenseInAPaddedExchangeIsAnError) {
  const ExpertPlacement placement = ExpertPlacement::Linear(4, 2);
  // One row, one pair, then the counts.
  const auto answer = [&](int32_t rows, int32_t pairs, int32_t index, int32_t expert) {
    std::vector<int32_t> part(kWidth);
    part.insert(part.end(), {index, expert, rows, pairs, 1});
    RoguePeer peer({part});
    Dispatcher dispatcher(&peer);
    return dispatcher.Dispatch(placement, nullptr, 0, kRowBytes, {}, 1, 3, 1).status();
  };
  EXPECT_TRUE(answer(1, 1, 0, 1).ok());
  EXPECT_TRUE(answer(0, 0, 7, 7).ok());
  EXPECT_EQ(answer(2, 1, 0, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer(1, 2, 0, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer(-1, 1, 0, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(answer(1, 1, 1, 1).code(), absl::StatusCode::kDataLoss) << "no such row";
}

TEST_P(DispatcherTest, OneRankCopiesNothing) {
  RunOn(1, [](int, Dispatcher& dispatcher, Communicator& comm) {
    LayerCall(dispatcher, comm, ExpertPlacement::Linear(4, 1), {3, 0, 1, 2}, 2);
    EXPECT_EQ(dispatcher.bytes_sent(), 0u);
  });
}

}  // namespace
}  // namespace moe
