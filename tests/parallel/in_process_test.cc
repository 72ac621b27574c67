#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "parallel/communicator.h"

namespace moe {
namespace {

// Runs fn(rank's communicator) on a thread per rank.
void OnAllRanks(std::vector<std::unique_ptr<Communicator>>& group, const std::function<void(Communicator&)>& fn) {
  std::vector<std::thread> threads;
  for (auto& rank : group) threads.emplace_back([&] { fn(*rank); });
  for (std::thread& t : threads) t.join();
}

TEST(InProcess, AllToAllVMovesEveryPartToItsRank) {
  auto group = CreateInProcessGroup(5, std::chrono::seconds(20));
  OnAllRanks(group, [](Communicator& c) {
    for (int round = 0; round < 50; ++round) {
      // Rank a sends b + round bytes of value 16a + b to rank b; some parts are empty.
      std::vector<std::vector<std::byte>> out(5);
      std::vector<std::vector<std::byte>> in(5);
      std::vector<std::span<const std::byte>> send(5);
      std::vector<std::span<std::byte>> receive(5);
      for (int r = 0; r < 5; ++r) {
        out[r].assign(r * (round % 3), std::byte(16 * c.rank() + r));
        in[r].assign(c.rank() * (round % 3), std::byte{0});
        send[r] = out[r];
        receive[r] = in[r];
      }
      ASSERT_TRUE(c.AllToAllV(send, receive, {"test", round}).ok());
      for (int r = 0; r < 5; ++r) {
        for (std::byte b : in[r]) ASSERT_EQ(b, std::byte(16 * r + c.rank()));
      }
    }
  });
}

TEST(InProcess, AllGatherAndBroadcast) {
  auto group = CreateInProcessGroup(3, std::chrono::seconds(20));
  OnAllRanks(group, [](Communicator& c) {
    const std::vector<int32_t> mine{c.rank(), 10 * c.rank()};
    std::vector<int32_t> all(6);
    ASSERT_TRUE(c.AllGather(mine, all, {"gather"}).ok());
    EXPECT_EQ(all, (std::vector<int32_t>{0, 0, 1, 10, 2, 20}));
    std::vector<std::byte> bytes(4, std::byte(c.rank()));
    ASSERT_TRUE(c.Broadcast(bytes, 2, {"broadcast"}).ok());
    EXPECT_EQ(bytes, std::vector<std::byte>(4, std::byte{2}));
    ASSERT_TRUE(c.Barrier({"barrier"}).ok());
  });
}

TEST(InProcess, AMissingRankIsNamed) {
  auto group = CreateInProcessGroup(3, std::chrono::milliseconds(50));
  OnAllRanks(group, [](Communicator& c) {
    if (c.rank() == 1) return;
    const Status status = c.Barrier({"dispatch", 7});
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_NE(std::string(status.message()).find("rank 1 did not reach phase dispatch of layer 7"), std::string::npos)
        << status;
  });
  EXPECT_FALSE(group[1]->Barrier({"later"}).ok()) << "the group stays unusable";
}

TEST(InProcess, AbortWakesTheWaiting) {
  auto group = CreateInProcessGroup(2, std::chrono::minutes(10));
  std::thread waiting([&] {
    const Status status = group[0]->Barrier({"combine", 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "rank 1 failed");
  });
  group[1]->Abort("rank 1 failed");
  waiting.join();
}

}  // namespace
}  // namespace moe
