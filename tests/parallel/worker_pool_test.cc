#include "parallel/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace moe {
namespace {

TEST(WorkerPool, RunsEveryThreadOnce) {
  for (int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (int round = 0; round < 500; ++round) {
      std::vector<std::atomic<int>> calls(threads);
      pool.Run([&](int t) { ++calls[t]; });
      for (const auto& c : calls) ASSERT_EQ(c.load(), 1);
    }
  }
}

TEST(WorkerPool, ParallelForRunsEveryTaskOnce) {
  WorkerPool pool(3);
  for (int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    pool.ParallelFor(count, [&](int64_t i) { ++calls[i]; });
    for (const auto& c : calls) ASSERT_EQ(c.load(), 1);
  }
}

TEST(WorkerPool, WritesAreVisibleAfterRun) {
  WorkerPool pool(4);
  std::vector<int> values(4);
  for (int round = 1; round < 2000; ++round) {
    pool.Run([&](int t) { values[t] = round; });
    for (int v : values) ASSERT_EQ(v, round);
  }
}

TEST(WorkerPool, IdleThreadsUseNoProcessor) {
  WorkerPool pool(4);
  pool.Run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // past the spinning
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  const auto micros = [](const timeval& t) { return t.tv_sec * 1000000 + t.tv_usec; };
  EXPECT_LT(micros(after.ru_utime) - micros(before.ru_utime), 30000);
}

TEST(WorkerPool, UsableCoresIsPositive) {
  EXPECT_GE(UsableCores(), 1);
}

}  // namespace
}  // namespace moe
