// TCP and Gloo with ranks as processes, which die, stop, come late. A rank is a fork of this test that writes how its
// operations ended into a file; nobody but the test's clock waits for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/parallel/groups.h"
#include "tests/parallel/schedules.h"

namespace moe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A store between processes: a file a key.
class FileStore : public RendezvousStore {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}
  Status Set(const std::string& key, const std::string& value) override {
    const std::string path = Path(key);
    std::ofstream(path + ".new", std::ios::binary) << value;
    std::filesystem::rename(path + ".new", path);
    return absl::OkStatus();
  }
  StatusOr<std::string> Wait(const std::string& key, milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    while (!std::filesystem::exists(Path(key))) {
      if (Clock::now() >= deadline) return absl::DeadlineExceededError(Cat("no ", key, " within the time"));
      std::this_thread::sleep_for(milliseconds(2));
    }
    return ReadFile(Path(key));
  }

 private:
  std::string Path(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '-');
    return folder_ + "/" + key;
  }
  const std::string folder_;
};

class GroupProcessTest : public testing::TestWithParam<ExchangeTransport> {
 protected:
  using Body = std::function<Status(Communicator&)>;

  void SetUp() override {
    if (!CheckTransport(GetParam()).ok()) GTEST_SKIP() << "not in this build";
    char folder[] = "/tmp/moe-group-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }

  void TearDown() override {
    for (const pid_t pid : ranks_) {
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Starts `options.rank` in a process of its own. Its result: how forming the group or else `body` ended.
  void Start(const GroupOptions& options, const Body& body) {
    ranks_.resize(options.size);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid > 0) {
      ranks_[options.rank] = pid;
      return;
    }
    alarm(200);  // whatever happens, no process stays
    FileStore store(folder_);
    auto communicator = CreateCommunicator(GetParam(), options, store);
    Status status = communicator.status();
    if (communicator.ok()) {
      (void)store.Set(Cat("formed", options.rank), "");
      status = body(**communicator);
      communicator->reset();
    }
    (void)store.Set(Cat("result", options.rank), Cat(absl::StatusCodeToString(status.code()), ": ", status.message()));
    _exit(0);
  }

  void StartAll(int size, milliseconds timeout, const Body& body) {
    for (int r = 0; r < size; ++r) {
      GroupOptions options = LoopbackOptions(r, size);
      options.timeout = timeout;
      Start(options, body);
    }
    for (int r = 0; r < size; ++r)
      ASSERT_TRUE(FileStore(folder_).Wait(Cat("formed", r), std::chrono::seconds(20)).ok());
  }

  // The result of a rank that must end by itself within `limit`, exit code 0.
  std::string Result(int rank, milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    int status = 0;
    while (waitpid(ranks_[rank], &status, WNOHANG) == 0) {
      if (Clock::now() >= deadline) return Cat("rank ", rank, " still runs after ", limit.count(), " ms");
      std::this_thread::sleep_for(milliseconds(2));
    }
    ranks_[rank] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Cat("rank ", rank, " ended with status ", status);
    return ReadFile(Cat(folder_, "/result", rank));
  }

  std::vector<pid_t> ranks_;
  std::string folder_;
};

Status AsStatus(const std::string& error) {
  return error.empty() ? absl::OkStatus() : absl::InternalError(error);
}

// Exchanges without end, `bytes` to everyone.
Status ExchangeForever(Communicator& c, size_t bytes) {
  const int n = c.size();
  std::vector<std::vector<std::byte>> out(n, std::vector<std::byte>(bytes));
  std::vector<std::vector<std::byte>> in(n, std::vector<std::byte>(bytes));
  const std::vector<std::span<const std::byte>> send(out.begin(), out.end());
  const std::vector<std::span<std::byte>> receive(in.begin(), in.end());
  for (int64_t round = 0;; ++round) MOE_RETURN_IF_ERROR(c.AllToAllV(send, receive, {"dispatch", round}));
}

TEST_P(GroupProcessTest, RandomSchedules) {
  StartAll(4, std::chrono::minutes(3), [](Communicator& c) { return AsStatus(RunSchedule(c, 5, 200)); });
  for (int r = 0; r < 4; ++r) EXPECT_EQ(Result(r, std::chrono::seconds(60)), "OK: ");
}

TEST_P(GroupProcessTest, ALateRankIsAwaited) {
  const auto body = [](Communicator& c) { return AsStatus(RunSchedule(c, 6, 10)); };
  Start(LoopbackOptions(0, 3), body);
  Start(LoopbackOptions(2, 3), body);
  std::this_thread::sleep_for(milliseconds(400));
  Start(LoopbackOptions(1, 3), body);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(Result(r, std::chrono::seconds(60)), "OK: ");
}

TEST_P(GroupProcessTest, AWrongGenerationDoesNotMeet) {
  for (int r = 0; r < 2; ++r) {
    GroupOptions options = LoopbackOptions(r, 2);
    options.generation = 7 + r;
    options.rendezvous_timeout = milliseconds(300);
    Start(options, [](Communicator&) { return absl::OkStatus(); });
  }
  EXPECT_EQ(Result(0, std::chrono::seconds(60)).find("DEADLINE_EXCEEDED: rank 1 did not come to generation 7"), 0u);
  EXPECT_EQ(Result(1, std::chrono::seconds(60)).find("DEADLINE_EXCEEDED: rank 0 did not come to generation 8"), 0u);
}

// Killed in the middle of exchanges of several sizes, so also in the middle of a message: everyone else names it at
// once.
TEST_P(GroupProcessTest, AKilledRankIsNamedAtOnce) {
  for (const size_t bytes : {size_t{16}, size_t{5000}, size_t{1} << 20, size_t{12} << 20}) {
    StartAll(4, std::chrono::minutes(3), [&](Communicator& c) { return ExchangeForever(c, bytes); });
    std::this_thread::sleep_for(milliseconds(150));
    kill(ranks_[2], SIGKILL);
    const auto start = Clock::now();
    for (const int r : {0, 1, 3}) {
      const std::string result = Result(r, std::chrono::seconds(60));
      EXPECT_EQ(result.find("UNAVAILABLE: rank 2 closed its connection"), 0u) << bytes << " bytes: " << result;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("          killed under exchanges of %zu bytes: all others ended after %.0f ms\n", bytes,
                1e3 * seconds);
    EXPECT_LT(seconds, 30) << "far below the timeout; a busy machine may take its time";
    TearDown();
    SetUp();
  }
}

// Killed while the others wait for it, and while nobody is in a call.
TEST_P(GroupProcessTest, AKilledRankWakesTheWaitingAndTheNextCall) {
  StartAll(3, std::chrono::minutes(3), [](Communicator& c) {
    std::this_thread::sleep_for(c.rank() == 0   ? milliseconds(0)
                                : c.rank() == 1 ? std::chrono::minutes(3)
                                                : milliseconds(600));
    return c.Barrier({"combine", 3});
  });
  std::this_thread::sleep_for(milliseconds(200));
  kill(ranks_[1], SIGKILL);
  EXPECT_EQ(Result(0, std::chrono::seconds(60)),
            "UNAVAILABLE: rank 1 closed its connection in phase combine of layer 3");
  const std::string later = Result(2, std::chrono::seconds(60));
  EXPECT_EQ(later.find("UNAVAILABLE: rank 1 closed its connection"), 0u) << later;
}

TEST_P(GroupProcessTest, AStoppedRankIsNamedAfterTheTimeout) {
  for (const size_t bytes : {size_t{16}, size_t{8} << 20}) {
    StartAll(4, std::chrono::seconds(2), [&](Communicator& c) { return ExchangeForever(c, bytes); });
    std::this_thread::sleep_for(milliseconds(150));
    kill(ranks_[2], SIGSTOP);
    const auto start = Clock::now();
    for (const int r : {0, 1, 3}) {
      const std::string result = Result(r, std::chrono::seconds(60));
      EXPECT_EQ(result.find("DEADLINE_EXCEEDED: rank 2 did not reach phase dispatch of layer "), 0u)
          << bytes << " bytes, rank " << r << ": " << result;
    }
    EXPECT_GT(Clock::now() - start, milliseconds(1500));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
    kill(ranks_[2], SIGCONT);  // it finds the group gone, and ends too
    const std::string result = Result(2, std::chrono::seconds(60));
    EXPECT_NE(result.find("rank "), std::string::npos) << result;
    EXPECT_NE(result.substr(0, 2), "OK");
    TearDown();
    SetUp();
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupProcessTest, testing::Values(ExchangeTransport::kTcp, ExchangeTransport::kGloo),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace moe
