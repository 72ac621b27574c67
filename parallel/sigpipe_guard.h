// SigpipeGuard: while it lives, writing to a closed socket on this thread is an error and no signal. For libraries that
// write without MSG_NOSIGNAL. Threads started meanwhile inherit it for good.
#ifndef MOE_PARALLEL_SIGPIPE_GUARD_H_
#define MOE_PARALLEL_SIGPIPE_GUARD_H_

#include <csignal>
#include <ctime>

namespace moe {

class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeGuard() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec now{};
    while (sigtimedwait(&sigpipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

}  // namespace moe

#endif  // MOE_PARALLEL_SIGPIPE_GUARD_H_
