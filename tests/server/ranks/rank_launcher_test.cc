// Children of the front, with /bin/sh in place of a rank.
#include "server/ranks/rank_launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "server/ranks/child_process.h"
#include "server/ranks/rank_events.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

template <typename Fn>
bool Eventually(Fn fn, double seconds = 20) {
  const double until = SteadySeconds() + seconds;
  while (!fn()) {
    if (SteadySeconds() > until) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

bool Exists(pid_t pid) {
  return kill(pid, 0) == 0;
}

class RankLauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / Cat("rank_launcher_", getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  RankLauncherOptions Shell(const std::string& script, int count = 1) const {
    RankLauncherOptions options;
    options.count = count;
    options.executable = "/bin/sh";
    options.arguments = {"sh", "-c", script};
    options.environment = {"OUT=" + directory_.string()};
    return options;
  }
  static std::unique_ptr<RankLauncher> Start(RankLauncherOptions options) {
    auto launcher = RankLauncher::Start(std::move(options));
    EXPECT_TRUE(launcher.ok()) << launcher.status();
    return *std::move(launcher);
  }
  // The words of a file that a child wrote; waits for it.
  std::vector<std::string> Words(const std::string& name) const {
    EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(directory_ / name); })) << name;
    std::ifstream file(directory_ / name);
    return {std::istream_iterator<std::string>(file), {}};
  }

  std::filesystem::path directory_;
};

constexpr const char* kForever = "exec sleep 1000";

TEST_F(RankLauncherTest, StartsAKilledChildAgain) {
  const auto launcher = Start(Shell(kForever, 2));
  const std::vector<pid_t> before = launcher->pids();
  ASSERT_EQ(before.size(), 2u);
  kill(before[0], SIGKILL);
  ASSERT_TRUE(Eventually(
      [&] {
        const auto now = launcher->pids();
        return now.size() == 2 && now[0] != before[0];
      },
      2));
  EXPECT_EQ(launcher->pids()[1], before[1]);
}

TEST_F(RankLauncherTest, BacksOffFromChildrenThatDieQuickly) {
  std::mutex mutex;
  std::vector<double> deaths;
  auto options = Shell("exit 5");
  options.first_delay_seconds = 0.2;
  options.max_delay_seconds = 0.4;
  options.on_exit = [&](const std::string&, int code, const std::string& how) {
    EXPECT_EQ(code, 5);
    EXPECT_EQ(how, "exited with code 5");
    std::lock_guard lock(mutex);
    deaths.push_back(SteadySeconds());
    return true;
  };
  const auto launcher = Start(std::move(options));
  ASSERT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return deaths.size() >= 5;
  }));
  std::lock_guard lock(mutex);
  EXPECT_GE(deaths[2] - deaths[1], 0.2);
  EXPECT_GE(deaths[3] - deaths[2], 0.4);
  EXPECT_GE(deaths[4] - deaths[3], 0.4);
  EXPECT_LT(deaths[4] - deaths[3], 0.75);
}

TEST_F(RankLauncherTest, ALongLifeIsNoQuickDeath) {
  auto options = Shell("sleep 0.1; exit 1");
  options.quick_death_seconds = 0.05;
  options.first_delay_seconds = 1000;
  std::atomic<int> deaths{0};
  options.on_exit = [&](const std::string&, int, const std::string&) { return ++deaths > 0; };
  const auto launcher = Start(std::move(options));
  EXPECT_TRUE(Eventually([&] { return deaths >= 4; }));
}

TEST_F(RankLauncherTest, AsksBeforeItStartsOneAgain) {
  auto options = Shell("exit 3");
  std::atomic<int> deaths{0};
  options.on_exit = [&](const std::string&, int, const std::string&) {
    ++deaths;
    return false;
  };
  const auto launcher = Start(std::move(options));
  ASSERT_TRUE(Eventually([&] { return deaths == 1; }));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(deaths, 1);
  EXPECT_TRUE(launcher->pids().empty());
}

TEST_F(RankLauncherTest, KillsByName) {
  const auto launcher =
      Start(Shell("echo $MOE_RANK_PROCESS > $OUT/$MOE_RANK_PROCESS.tmp; "
                  "mv $OUT/$MOE_RANK_PROCESS.tmp $OUT/name.$$; exec sleep 1000",
                  2));
  const std::vector<pid_t> pids = launcher->pids();
  const auto first = Words(Cat("name.", pids[0]));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(launcher->Knows(first[0]));
  EXPECT_FALSE(launcher->Knows("nobody"));
  launcher->Kill("nobody", 0);
  launcher->Kill(first[0], 0.3);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(launcher->pids(), pids);
  // Killed, and another one with another name in its place.
  ASSERT_TRUE(Eventually(
      [&] {
        const auto now = launcher->pids();
        return now.size() == 2 && now[0] != pids[0];
      },
      2));
  EXPECT_FALSE(launcher->Knows(first[0]));
  EXPECT_EQ(launcher->pids()[1], pids[1]);
  const auto second = Words(Cat("name.", pids[1]));
  ASSERT_EQ(second.size(), 1u);
  launcher->LetGo(second[0]);
  launcher->Kill(second[0], 0);
  ASSERT_TRUE(Eventually([&] { return launcher->pids().size() == 1; }, 2));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(launcher->pids().size(), 1u);
}

TEST_F(RankLauncherTest, EndsAllAndWaits) {
  auto options = Shell("trap '' TERM; while true; do sleep 0.05; done", 2);
  options.end_grace_seconds = 0.3;
  auto launcher = Start(std::move(options));
  auto mild = Start(Shell(kForever));
  std::vector<pid_t> pids = launcher->pids();
  pids.push_back(mild->pids().at(0));
  std::this_thread::sleep_for(milliseconds(200));  // for the trap
  kill(pids[0], SIGSTOP);
  double begin = SteadySeconds();
  launcher.reset();
  EXPECT_GE(SteadySeconds() - begin, 0.3);
  EXPECT_LT(SteadySeconds() - begin, 2);
  begin = SteadySeconds();
  mild.reset();
  EXPECT_LT(SteadySeconds() - begin, 0.5);
  for (const pid_t pid : pids) EXPECT_FALSE(Exists(pid)) << pid;
}

TEST_F(RankLauncherTest, ChildrenStartClean) {
  // What a front has: a blocked and an ignored signal, open files, flags in its environment.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  signal(SIGPIPE, SIG_IGN);
  const int open_file = dup(STDERR_FILENO);
  setenv("MOE_PORT", "1", 1);
  const auto launcher =
      Start(Shell("{ grep -E 'SigBlk|SigIgn' /proc/$$/status | cut -f2; echo \"port:$MOE_PORT\"; "
                  "ls /proc/$$/fd | wc -l; readlink /proc/$$/fd/0; cut -d' ' -f5 /proc/$$/stat; echo $$; } > $OUT/tmp; "
                  "mv $OUT/tmp $OUT/state; exec sleep 1000"));
  const auto words = Words("state");
  unsetenv("MOE_PORT");
  close(open_file);
  signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_EQ(words.size(), 7u);
  EXPECT_EQ(words[0], "0000000000000000");  // blocked
  EXPECT_EQ(words[1], "0000000000000000");  // ignored
  EXPECT_EQ(words[2], "port:");
  EXPECT_LE(std::stoi(words[3]), 5);  // three, and what the shell opens for itself
  EXPECT_EQ(words[4], "/dev/null");
  EXPECT_EQ(words[5], words[6]);  // its own process group
}

TEST_F(RankLauncherTest, AChildDiesWithTheThreadThatStartedIt) {
  pid_t pid = 0;
  std::thread starter([&] {
    const std::string script = Cat("echo > ", (directory_ / "runs").string(), "; ", kForever);
    pid = *StartChild("/bin/sh", {"sh", "-c", script}, EnvironmentWithout("MOE_"));
    Words("runs");  // it has asked to die with this thread
  });
  starter.join();
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(ExitText(status), "was ended by signal 9 (Killed)");
}

TEST_F(RankLauncherTest, AnExecutableThatIsNotThereIsAnExit) {
  auto options = Shell("");
  options.executable = (directory_ / "nothing").string();
  std::atomic<int> code{0};
  options.on_exit = [&](const std::string&, int exit_code, const std::string&) {
    code = exit_code;
    return false;
  };
  const auto launcher = Start(std::move(options));
  EXPECT_TRUE(Eventually([&] { return code == 127; }));
}

}  // namespace
}  // namespace moe
