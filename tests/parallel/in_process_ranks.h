// Ranks as threads, for tests.
#ifndef MOE_TESTS_PARALLEL_IN_PROCESS_RANKS_H_
#define MOE_TESTS_PARALLEL_IN_PROCESS_RANKS_H_

#include <functional>
#include <thread>
#include <vector>

#include "parallel/communicator.h"

namespace moe {

// Runs body on one thread for each of `ranks` ranks and waits for all.
inline void OnRanks(int ranks, const std::function<void(Communicator&)>& body) {
  auto group = CreateInProcessGroup(ranks, std::chrono::seconds(60));
  std::vector<std::thread> threads;
  threads.reserve(group.size());
  for (auto& rank : group) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace moe

#endif  // MOE_TESTS_PARALLEL_IN_PROCESS_RANKS_H_
