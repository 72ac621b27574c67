#include "server/commands/signals.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace moe {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int WaitForStopSignal(std::chrono::milliseconds timeout) {
  const sigset_t set = StopSignals();
  timespec wait{};
  wait.tv_sec = timeout.count() / 1000;
  wait.tv_nsec = (timeout.count() % 1000) * 1000000;
  return std::max(0, sigtimedwait(&set, nullptr, &wait));
}

}  // namespace moe
