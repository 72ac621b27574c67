#include "server/ranks/rank_launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <future>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "parallel/base/log.h"
#include "server/ranks/child_process.h"
#include "server/ranks/rank_events.h"
#include "server/ranks/rank_security.h"

namespace moe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kPollSeconds = 0.05;  // where the system has no descriptors of processes

int OpenPidFd(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0U));
#else
  return -1;
#endif
}

struct Child {
  int number = 0;       // for people, from 1
  std::string process;  // of the present start
  pid_t pid = 0;        // 0: does not run
  int pid_fd = -1;
  double started = 0;  // SteadySeconds
  int quick_deaths = 0;
  double start_at = 0;
  double kill_at = kNever;
  bool let_go = false;
};

class RankLauncherImpl final : public RankLauncher {
 public:
  explicit RankLauncherImpl(RankLauncherOptions options)
      : options_(std::move(options)),
        environment_(EnvironmentWithout("MOE_")),
        children_(static_cast<size_t>(options_.count)) {
    environment_.insert(environment_.end(), options_.environment.begin(), options_.environment.end());
    for (int i = 0; i < options_.count; ++i) children_[static_cast<size_t>(i)].number = i + 1;
  }

  ~RankLauncherImpl() override {
    if (thread_.joinable()) {
      {
        std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      Nudge();
      thread_.join();
    }
    if (nudge_ >= 0) close(nudge_);
  }

  Status Start() {
    nudge_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (nudge_ < 0) return absl::ResourceExhaustedError("cannot open an eventfd");
    std::promise<Status> started;
    std::future<Status> result = started.get_future();
    // The thread that forks lives as long as the children may: they die with it (StartChild).
    thread_ = std::thread([this, &started] {
      Status status;
      {
        std::lock_guard lock(mutex_);
        for (Child& child : children_) {
          if (status.ok()) status = StartOne(&child);
        }
        if (!status.ok()) stopping_ = true;
      }
      started.set_value(status);
      Loop();
    });
    return result.get();
  }

  bool Knows(const std::string& process) const override {
    std::lock_guard lock(mutex_);
    return std::any_of(children_.begin(), children_.end(),
                       [&](const Child& child) { return child.pid != 0 && child.process == process; });
  }

  void Kill(const std::string& process, double after_seconds) override {
    {
      std::lock_guard lock(mutex_);
      Child* child = Find(process);
      if (child == nullptr) return;
      if (after_seconds <= 0) {
        kill(child->pid, SIGKILL);  // not reaped yet: the number is still its own
        return;
      }
      child->kill_at = std::min(child->kill_at, SteadySeconds() + after_seconds);
    }
    Nudge();
  }

  void Arrived(const std::string& process) override {
    std::lock_guard lock(mutex_);
    if (Child* child = Find(process); child != nullptr) child->kill_at = kNever;
  }

  void LetGo(const std::string& process) override {
    std::lock_guard lock(mutex_);
    if (Child* child = Find(process); child != nullptr) child->let_go = true;
  }

  void LetAllGo() override {
    std::lock_guard lock(mutex_);
    for (Child& child : children_) child.let_go = true;
  }

  std::vector<pid_t> pids() const override {
    std::lock_guard lock(mutex_);
    std::vector<pid_t> pids;
    for (const Child& child : children_) {
      if (child.pid != 0) pids.push_back(child.pid);
    }
    return pids;
  }

 private:
  struct Death {
    size_t index;
    int exit_code;  // −1: a signal
    std::string how;
    std::string who;
    double delay;
  };

  Child* Find(const std::string& process) {
    for (Child& child : children_) {
      if (child.pid != 0 && child.process == process) return &child;
    }
    return nullptr;
  }

  void Nudge() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(nudge_, &one, sizeof(one));
  }

  // mutex_ held, on thread_.
  Status StartOne(Child* child) {
    child->process = RandomSecret().substr(0, 32);
    std::vector<std::string> environment = environment_;
    environment.push_back(Cat(kRankProcessVariable, "=", child->process));
    MOE_ASSIGN_OR_RETURN(child->pid, StartChild(options_.executable, options_.arguments, environment));
    child->pid_fd = OpenPidFd(child->pid);
    child->started = SteadySeconds();
    child->start_at = kNever;
    child->kill_at = child->started + options_.arrival_seconds;
    MOE_LOG(kDebug) << "rank process " << child->number << " started, pid " << child->pid;
    return Status();
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const double wake = ActOnTimes();
      const std::vector<pollfd> fds = Descriptors();
      lock.unlock();
      Sleep(fds, wake);
      lock.lock();
      for (const Death& death : Reap()) {
        if (stopping_) break;
        lock.unlock();
        const bool again = AskAgain(death);
        lock.lock();
        if (!again) children_[death.index].let_go = true;
      }
    }
    EndAll(&lock);
  }

  // Starts and kills what is due; returns when the next one is.
  double ActOnTimes() {
    double next = kNever;
    const double now = SteadySeconds();
    for (Child& child : children_) {
      if (child.pid == 0 && !child.let_go && child.start_at <= now) {
        if (const Status status = StartOne(&child); !status.ok()) {
          MOE_LOG(kError) << "rank process " << child.number << ": " << status.message();
          child.start_at = now + options_.max_delay_seconds;
        }
      }
      if (child.pid != 0 && child.kill_at <= now) {
        kill(child.pid, SIGKILL);
        child.kill_at = kNever;
      }
      if (child.pid == 0 && !child.let_go) next = std::min(next, child.start_at);
      if (child.pid != 0) next = std::min(next, child.pid_fd < 0 ? now + kPollSeconds : child.kill_at);
    }
    return next;
  }

  std::vector<pollfd> Descriptors() const {
    std::vector<pollfd> fds = {{nudge_, POLLIN, 0}};
    for (const Child& child : children_) {
      if (child.pid != 0 && child.pid_fd >= 0) fds.push_back({child.pid_fd, POLLIN, 0});
    }
    return fds;
  }

  void Sleep(std::vector<pollfd> fds, double until) const {
    const double left = std::clamp(until - SteadySeconds(), 0.0, 3600.0);
    poll(fds.data(), fds.size(), static_cast<int>(std::ceil(left * 1000)));
    uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t got = read(nudge_, &ignored, sizeof(ignored));
  }

  // Those that have ended; when they start again is set.
  std::vector<Death> Reap() {
    std::vector<Death> deaths;
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      int status = 0;
      if (child.pid == 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      const double lived = SteadySeconds() - child.started;
      double delay = 0;
      if (lived >= options_.quick_death_seconds) {
        child.quick_deaths = 0;
      } else if (++child.quick_deaths > 1) {
        delay = std::min(options_.max_delay_seconds,
                         std::ldexp(options_.first_delay_seconds, std::min(child.quick_deaths - 2, 30)));
      }
      char lived_text[32];
      std::snprintf(lived_text, sizeof(lived_text), "%.1f s", lived);
      const std::string who = Cat("rank process ", child.number, " (pid ", child.pid, ")");
      if (child.let_go) {
        MOE_LOG(kInfo) << who << " " << ExitText(status) << ", as it was told";
      } else {
        deaths.push_back({i, WIFEXITED(status) ? WEXITSTATUS(status) : -1, ExitText(status),
                          Cat(who, " ", ExitText(status), " after ", lived_text), delay});
      }
      Forget(&child);
      child.start_at = SteadySeconds() + delay;
    }
    return deaths;
  }

  static void Forget(Child* child) {
    if (child->pid_fd >= 0) close(child->pid_fd);
    child->pid_fd = -1;
    child->pid = 0;
  }

  bool AskAgain(const Death& death) const {
    const bool again =
        !options_.on_exit || options_.on_exit(children_[death.index].process, death.exit_code, death.how);
    const std::string then = !again            ? "not started again"
                             : death.delay > 0 ? Cat("started again in ", death.delay, " s")
                                               : "started again at once";
    MOE_LOG(kWarning) << death.who << "; " << then;
    return again;
  }

  void EndAll(std::unique_lock<std::mutex>* lock) {
    const double kill_at = SteadySeconds() + options_.end_grace_seconds;
    Signal(SIGTERM);
    Signal(SIGCONT);  // a stopped one ends, too
    bool killed = false;
    for (;;) {
      for (Child& child : children_) {
        if (child.pid != 0 && waitpid(child.pid, nullptr, WNOHANG) == child.pid) Forget(&child);
      }
      std::vector<pollfd> fds = Descriptors();
      const bool running =
          std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.pid != 0; });
      if (!running) return;
      const double now = SteadySeconds();
      if (now >= kill_at && !killed) {
        killed = true;
        Signal(SIGKILL);
      }
      lock->unlock();
      Sleep(std::move(fds), killed ? now + kPollSeconds : std::min(kill_at, now + kPollSeconds));
      lock->lock();
    }
  }

  void Signal(int number) const {
    for (const Child& child : children_) {
      if (child.pid != 0) kill(child.pid, number);
    }
  }

  const RankLauncherOptions options_;
  std::vector<std::string> environment_;
  int nudge_ = -1;  // an eventfd that ends thread_'s sleep

  mutable std::mutex mutex_;
  std::vector<Child> children_;  // guarded by mutex_; process is written on thread_ alone
  bool stopping_ = false;        // guarded by mutex_
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<RankLauncher>> RankLauncher::Start(RankLauncherOptions options) {
  auto launcher = std::make_unique<RankLauncherImpl>(std::move(options));
  MOE_RETURN_IF_ERROR(launcher->Start());
  return launcher;
}

}  // namespace moe
