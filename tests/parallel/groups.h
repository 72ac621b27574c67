// Groups of communicators as threads of the test, over each transport of this build.
#ifndef MOE_TESTS_PARALLEL_GROUPS_H_
#define MOE_TESTS_PARALLEL_GROUPS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/exchange_transport.h"
#include "parallel/gloo_group.h"

namespace moe {

enum class Transport { kInProcess, kTcp, kGloo };

inline std::vector<Transport> Transports() {
  std::vector<Transport> transports{Transport::kInProcess, Transport::kTcp};
  if (HasGloo()) transports.push_back(Transport::kGloo);
  return transports;
}

inline std::string NameOfTransport(const testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kInProcess ? "InProcess" : info.param == Transport::kTcp ? "Tcp" : "Gloo";
}

// Calls fn(rank) on a thread per rank.
inline void OnThreads(int size, const std::function<void(int rank)>& fn) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { fn(r); });
  for (std::thread& t : threads) t.join();
}

inline GroupOptions LoopbackOptions(int rank, int size) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.address = "127.0.0.1";
  return options;
}

inline std::vector<std::unique_ptr<Communicator>> MakeGroup(Transport transport, int size,
                                                            std::chrono::milliseconds timeout) {
  if (transport == Transport::kInProcess) return CreateInProcessGroup(size, timeout);
  InMemoryStore store;
  std::vector<std::unique_ptr<Communicator>> group(size);
  OnThreads(size, [&](int rank) {
    GroupOptions options = LoopbackOptions(rank, size);
    options.timeout = timeout;
    const auto over = transport == Transport::kTcp ? ExchangeTransport::kTcp : ExchangeTransport::kGloo;
    auto communicator = CreateCommunicator(over, options, store);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    group[rank] = std::move(*communicator);
  });
  return group;
}

// Destroys the ranks of a group at the same time, as ranks do.
inline void Destroy(std::vector<std::unique_ptr<Communicator>>& group) {
  OnThreads(static_cast<int>(group.size()), [&](int rank) { group[rank].reset(); });
}

}  // namespace moe

#endif  // MOE_TESTS_PARALLEL_GROUPS_H_
