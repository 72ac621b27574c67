// What every communicator must do, over each transport of this build, with ranks as threads.
#include "parallel/communicator.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/parallel/groups.h"
#include "tests/parallel/schedules.h"

namespace moe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class CommunicatorTest : public testing::TestWithParam<Transport> {
 protected:
  // Forms a group, calls body on a thread per rank, destroys the group.
  void OnGroup(int size, milliseconds timeout, const std::function<void(Communicator&)>& body) {
    auto group = MakeGroup(GetParam(), size, timeout);
    for (auto& rank : group) ASSERT_NE(rank, nullptr);
    OnThreads(size, [&](int rank) { body(*group[rank]); });
    Destroy(group);
  }
};

INSTANTIATE_TEST_SUITE_P(Each, CommunicatorTest, testing::ValuesIn(Transports()), NameOfTransport);

TEST_P(CommunicatorTest, KnowsItsRankAndSize) {
  auto group = MakeGroup(GetParam(), 3, std::chrono::seconds(30));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(group[r]->rank(), r);
    EXPECT_EQ(group[r]->size(), 3);
  }
}

TEST_P(CommunicatorTest, RandomSchedules) {
  for (int size = 1; size <= 8; ++size) {
    OnGroup(size, std::chrono::minutes(3), [&](Communicator& c) { EXPECT_EQ(RunSchedule(c, 77 + size, 60), ""); });
  }
}

TEST_P(CommunicatorTest, ManyTinyRounds) {
  OnGroup(4, std::chrono::minutes(3), [](Communicator& c) {
    AllToAllCase one_byte;
    const AllToAllCase::Sizes sizes(4, std::vector<size_t>(4, 1));
    for (uint64_t round = 0; round < 1500; ++round) ASSERT_EQ(one_byte.Run(c, sizes, round), "");
  });
}

TEST_P(CommunicatorTest, LargeParts) {
  OnGroup(2, std::chrono::minutes(3), [](Communicator& c) {
    AllToAllCase large;
    for (uint64_t round = 0; round < 2; ++round) {
      // 64 MiB one way, nothing or one byte the other.
      ASSERT_EQ(large.Run(c, {{5, 64u << 20}, {round, 1}}, round), "");
    }
    ASSERT_EQ(large.Run(c, {{0, 16u << 20}, {16u << 20, 0}}, 2), "");
  });
}

TEST_P(CommunicatorTest, NothingToSendAtAll) {
  OnGroup(3, std::chrono::minutes(3), [](Communicator& c) {
    AllToAllCase nothing;
    ASSERT_EQ(nothing.Run(c, AllToAllCase::Sizes(3, std::vector<size_t>(3, 0)), 0), "");
    ASSERT_TRUE(c.AllGather({}, {}, {"empty"}).ok());
    ASSERT_TRUE(c.Broadcast({}, 1, {"empty"}).ok());
    ASSERT_EQ(nothing.Run(c, {{0, 0, 9}, {0, 0, 0}, {0, 0, 0}}, 1), "");
  });
}

// A barrier must not end before the last rank has come.
TEST_P(CommunicatorTest, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  OnGroup(4, std::chrono::minutes(3), [&](Communicator& c) {
    for (int round = 1; round <= 20; ++round) {
      if (c.rank() == round % 4) std::this_thread::sleep_for(milliseconds(2));
      ++arrived;
      ASSERT_TRUE(c.Barrier({"barrier", round}).ok());
      ASSERT_GE(arrived, 4 * round);
    }
  });
}

TEST_P(CommunicatorTest, AMissingRankIsNamed) {
  const auto start = Clock::now();
  OnGroup(3, milliseconds(200), [](Communicator& c) {
    if (c.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(600));
    } else {
      const Status status = c.Barrier({"dispatch", 7});
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_NE(std::string(status.message()).find("rank 1 did not reach phase dispatch of layer 7 within 200 ms"),
                std::string::npos)
          << status;
    }
    EXPECT_FALSE(c.Barrier({"later"}).ok()) << "the group stays unusable";
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST_P(CommunicatorTest, AbortWakesEveryRank) {
  const auto start = Clock::now();
  OnGroup(4, std::chrono::minutes(10), [](Communicator& c) {
    if (c.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      c.Abort("rank 2 failed");
      c.Abort("a second reason changes nothing");
    }
    for (int call = 0; call < 2; ++call) {
      const Status status = c.Barrier({"combine", 1});
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(status.message(), "rank 2 failed");
    }
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST_P(CommunicatorTest, AbortFromAnotherThreadWakesALargeTransfer) {
  auto group = MakeGroup(GetParam(), 2, std::chrono::minutes(10));
  const auto start = Clock::now();
  std::thread aborting([&] {
    std::this_thread::sleep_for(milliseconds(50));
    group[0]->Abort("enough");
  });
  // Rank 1 never comes, so rank 0 fills the connection and waits.
  std::vector<std::byte> bytes(32u << 20);
  const std::vector<std::span<const std::byte>> send{{}, bytes};
  const std::vector<std::span<std::byte>> receive{{}, std::span(bytes).first(1)};
  EXPECT_EQ(group[0]->AllToAllV(send, receive, {"dispatch", 3}).message(), "enough");
  aborting.join();
  const std::vector<std::span<const std::byte>> send_back{std::span(bytes).first(1), {}};
  const std::vector<std::span<std::byte>> receive_back{bytes, {}};
  EXPECT_EQ(group[1]->AllToAllV(send_back, receive_back, {"dispatch", 3}).message(), "enough");
  Destroy(group);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

// Prints what an exchange costs. Not a check: the machine is shared.
TEST_P(CommunicatorTest, Speed) {
  for (const size_t bytes : {size_t{4} << 10, size_t{64} << 20}) {
    std::atomic<double> seconds{0};
    const int rounds = bytes > (1u << 20) ? 4 : 500;
    OnGroup(2, std::chrono::minutes(3), [&](Communicator& c) {
      std::vector<std::byte> out(bytes, std::byte{1});
      std::vector<std::byte> in(bytes);
      std::vector<std::span<const std::byte>> send(2);
      std::vector<std::span<std::byte>> receive(2);
      send[1 - c.rank()] = out;
      receive[1 - c.rank()] = in;
      ASSERT_TRUE(c.AllToAllV(send, receive, {"warm"}).ok());
      const auto start = Clock::now();
      for (int i = 0; i < rounds; ++i) ASSERT_TRUE(c.AllToAllV(send, receive, {"speed", i}).ok());
      if (c.rank() == 0) seconds = std::chrono::duration<double>(Clock::now() - start).count() / rounds;
    });
    const double time = seconds;
    std::printf("          2 ranks, all-to-all of %zu KiB: %.1f us, %.2f GB/s each way\n", bytes >> 10, 1e6 * time,
                1e-9 * static_cast<double>(bytes) / time);
  }
}

}  // namespace
}  // namespace moe
