// TCP and Gloo with ranks as threads: how a group forms, and strangers at its door. group_process_test.cc has ranks as
// processes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "tests/parallel/groups.h"
#include "tests/parallel/schedules.h"

namespace moe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Outcome = StatusOr<std::unique_ptr<Communicator>>;

class GroupTest : public testing::TestWithParam<ExchangeTransport> {
 protected:
  void SetUp() override {
    if (!CheckTransport(GetParam()).ok()) GTEST_SKIP() << "not in this build";
  }

  static Outcome Create(const GroupOptions& options, RendezvousStore& store) {
    return CreateCommunicator(GetParam(), options, store);
  }
  static std::string Key(int rank) { return Cat(TransportName(GetParam()), "/0/", rank); }
  static Transport InGroups() { return GetParam() == ExchangeTransport::kTcp ? Transport::kTcp : Transport::kGloo; }
  static std::vector<Outcome> Form(int size, RendezvousStore& store, const std::function<void(GroupOptions&)>& change) {
    std::vector<Outcome> outcomes(size);
    OnThreads(size, [&](int rank) {
      GroupOptions options = LoopbackOptions(rank, size);
      change(options);
      outcomes[rank] = Create(options, store);
    });
    return outcomes;
  }
};

// A TCP connection to 127.0.0.1:port, or -1.
int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// The ports in a published value: it holds addresses, each a sockaddr with something behind it.
std::vector<int> PortsIn(const std::string& value) {
  std::vector<int> ports;
  sockaddr_in address{};
  for (size_t i = 0; i + sizeof(address) <= value.size(); ++i) {
    std::memcpy(&address, value.data() + i, sizeof(address));
    if (address.sin_family == AF_INET && address.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
      ports.push_back(ntohs(address.sin_port));
    }
  }
  return ports;
}

// A store behind whose back a stranger connects to every address before the peers learn it.
class StrangerStore : public RendezvousStore {
 public:
  explicit StrangerStore(std::string greeting) : greeting_(std::move(greeting)) {}
  ~StrangerStore() override {
    for (const int fd : connections_) close(fd);
  }
  Status Set(const std::string& key, const std::string& value) override {
    for (const int port : PortsIn(value)) {
      const int fd = ConnectTo(port);
      if (fd < 0) continue;
      const auto sent = send(fd, greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
      EXPECT_EQ(sent, static_cast<ssize_t>(greeting_.size()));
      std::lock_guard lock(mutex_);
      connections_.push_back(fd);
    }
    return store_.Set(key, value);
  }
  StatusOr<std::string> Wait(const std::string& key, milliseconds timeout) override {
    return store_.Wait(key, timeout);
  }
  size_t strangers() const { return connections_.size(); }

 private:
  const std::string greeting_;
  InMemoryStore store_;
  std::mutex mutex_;
  std::vector<int> connections_;
};

TEST_P(GroupTest, RefusesWhatIsNoAddressOfOneHost) {
  InMemoryStore store;
  for (const char* address : {"localhost", "no.such.name.invalid", "0.0.0.0", "::", "", "127.0.0.1:80"}) {
    GroupOptions options = LoopbackOptions(0, 2);
    options.address = address;
    EXPECT_EQ(Create(options, store).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  GroupOptions options = LoopbackOptions(0, 2);
  options.interface = "lo";
  EXPECT_EQ(Create(options, store).status().code(), absl::StatusCode::kInvalidArgument) << "both";
  options.address = "";
  options.interface = "no-such-if";
  EXPECT_EQ(Create(options, store).status().code(), absl::StatusCode::kInvalidArgument);
  options.rank = 2;
  EXPECT_EQ(Create(options, store).status().code(), absl::StatusCode::kInvalidArgument);
  options = LoopbackOptions(0, 2);
  options.address = "192.0.2.1";  // an address for documentation: no host has it
  const Status foreign = Create(options, store).status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(foreign.message()).find("cannot listen on 192.0.2.1"), std::string::npos) << foreign;
}

TEST_P(GroupTest, ListensOnAnInterface) {
  InMemoryStore store;
  auto group = Form(2, store, [](GroupOptions& options) {
    options.address = "";
    options.interface = "lo";
  });
  OnThreads(2, [&](int rank) {
    ASSERT_TRUE(group[rank].ok()) << group[rank].status();
    EXPECT_EQ(RunSchedule(**group[rank], 1, 5), "");
  });
}

TEST_P(GroupTest, ARankThatDoesNotComeIsNamed) {
  InMemoryStore store;
  GroupOptions options = LoopbackOptions(0, 2);
  options.generation = 5;
  options.rendezvous_timeout = milliseconds(100);
  const Status status = Create(options, store).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(std::string(status.message()).find("rank 1 did not come to generation 5"), std::string::npos) << status;
}

TEST_P(GroupTest, GenerationsDoNotMeet) {
  InMemoryStore store;
  const auto outcomes = Form(2, store, [](GroupOptions& options) {
    options.generation = 5 + options.rank;
    options.rendezvous_timeout = milliseconds(100);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded) << outcome.status();
  }
}

// A card that names a port where nobody listens any more.
TEST_P(GroupTest, AStaleAddressFailsInTime) {
  InMemoryStore first;
  GroupOptions options = LoopbackOptions(0, 2);
  options.rendezvous_timeout = milliseconds(50);
  ASSERT_FALSE(Create(options, first).ok());
  const std::string stale = *first.Wait(Key(0), milliseconds(0));
  InMemoryStore second;
  ASSERT_TRUE(second.Set(Key(0), stale).ok());
  options.rank = 1;
  options.rendezvous_timeout = milliseconds(500);
  const auto start = Clock::now();
  const Status status = Create(options, second).status();
  EXPECT_NE(std::string(status.message()).find("rank 0"), std::string::npos) << status;
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST_P(GroupTest, DamagedCardsAreErrors) {
  for (const char* card : {"", "short", "0123456789abcdef", "0123456789abcdefXYZ"}) {
    InMemoryStore store;
    ASSERT_TRUE(store.Set(Key(1), card).ok());
    GroupOptions options = LoopbackOptions(0, 2);
    options.rendezvous_timeout = milliseconds(300);
    EXPECT_EQ(Create(options, store).status().code(), absl::StatusCode::kUnavailable) << card;
  }
}

// Strangers that connect while the group forms do not get in; at worst the attempt fails within its timeout, and the
// next generation forms.
TEST_P(GroupTest, StrangersWhileTheGroupForms) {
  std::string noise(4096, '\0');
  std::mt19937 random(3);
  for (char& c : noise) c = static_cast<char>(random());
  const std::string http =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a scanner that says more than a frame\r\n\r\n";
  for (const std::string& greeting : {std::string(), std::string("x"), http, noise}) {
    for (const int size : {2, 3}) {
      StrangerStore store(greeting);
      const auto start = Clock::now();
      // Over Gloo they make the attempt fail, at the latest when its time is up.
      const milliseconds patience(InGroups() == Transport::kGloo ? 500 : 20'000);
      auto outcomes = Form(size, store, [&](GroupOptions& options) { options.rendezvous_timeout = patience; });
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
      if (InGroups() == Transport::kTcp) {  // the ranks come in beside them
        EXPECT_EQ(store.strangers(), static_cast<size_t>(size));
        OnThreads(size, [&](int rank) {
          ASSERT_TRUE(outcomes[rank].ok()) << outcomes[rank].status();
          EXPECT_EQ(RunSchedule(**outcomes[rank], 1, 5), "");
        });
        continue;
      }
      EXPECT_EQ(store.strangers(), static_cast<size_t>(size * (size - 1)));
      for (const Outcome& outcome : outcomes) {
        EXPECT_FALSE(outcome.ok()) << "each pair has one side that takes the first connection";
        EXPECT_NE(std::string(outcome.status().message()).find("rank "), std::string::npos) << outcome.status();
      }
    }
  }
  InMemoryStore store;
  auto group = Form(3, store, [](GroupOptions& options) { options.generation = 1; });
  OnThreads(3, [&](int rank) {
    ASSERT_TRUE(group[rank].ok()) << group[rank].status();
    EXPECT_EQ(RunSchedule(**group[rank], 1, 5), "");
  });
}

// Once a group has formed nothing listens, so nobody can disturb a step.
TEST_P(GroupTest, NoOpenPortWhileTheGroupLives) {
  InMemoryStore store;
  auto group = Form(3, store, [](GroupOptions&) {});
  OnThreads(3, [&](int rank) {
    ASSERT_TRUE(group[rank].ok()) << group[rank].status();
    const std::vector<int> ports = PortsIn(*store.Wait(Key(rank), milliseconds(0)));
    EXPECT_EQ(ports.size(), InGroups() == Transport::kGloo ? 2u : 1u);
    for (const int port : ports) EXPECT_EQ(ConnectTo(port), -1) << "port " << port;
    EXPECT_EQ(RunSchedule(**group[rank], 1, 20), "");
  });
}

// A rank that goes after its last operation disturbs nobody who still finishes; the next operation names it.
TEST_P(GroupTest, LeavingInOrder) {
  for (int round = 0; round < 5; ++round) {
    auto group = MakeGroup(InGroups(), 4, std::chrono::seconds(20));
    OnThreads(4, [&](int rank) {
      EXPECT_EQ(RunSchedule(*group[rank], 9 + round, 20), "");
      if (rank == 3) {
        group[3].reset();
        return;
      }
      std::this_thread::sleep_for(milliseconds(200));
      const auto start = Clock::now();
      const Status status = group[rank]->Barrier({"later", 2});
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(status.message(), "rank 3 closed its connection in phase later of layer 2");
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
    });
  }
}

TEST_P(GroupTest, DestroyingDoesNotWaitForAPeerThatNeverCame) {
  auto group = MakeGroup(InGroups(), 8, std::chrono::minutes(10));
  const auto start = Clock::now();
  group[0].reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  group[7]->Abort("over");
  Destroy(group);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

INSTANTIATE_TEST_SUITE_P(All, GroupTest, testing::Values(ExchangeTransport::kTcp, ExchangeTransport::kGloo),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace moe
