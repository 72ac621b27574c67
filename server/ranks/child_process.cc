#include "server/ranks/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moe {
namespace {

constexpr int kExitCannotRun = 127;

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void CloseFrom(int first, int limit) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  for (int fd = first; fd < limit; ++fd) close(fd);
}

// In the child of a process with threads: calls that are safe in signal handlers, no memory is taken.
[[noreturn]] void Exec(const char* executable, char* const* arguments, char* const* environment, pid_t parent,
                       int fd_limit) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitCannotRun);  // it died before
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (const int null = open("/dev/null", O_RDONLY); null > 0) dup2(null, STDIN_FILENO);
  CloseFrom(STDERR_FILENO + 1, fd_limit);
  execve(executable, arguments, environment);
  _exit(kExitCannotRun);
}

}  // namespace

StatusOr<pid_t> StartChild(const std::string& executable, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment) {
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const auto fd_limit = static_cast<int>(sysconf(_SC_OPEN_MAX));
  const pid_t parent = getpid();
  // A signal in the child before its own handlers are gone would run ours.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) Exec(executable.c_str(), argv.data(), envp.data(), parent, fd_limit);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return absl::ResourceExhaustedError(Cat("cannot start a process: ", std::strerror(error)));
  return pid;
}

std::string ExitText(int wait_status) {
  if (WIFEXITED(wait_status)) return Cat("exited with code ", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* name = strsignal(number);
  return Cat("was ended by signal ", number, " (", name == nullptr ? "?" : name, ")");
}

std::vector<std::string> EnvironmentWithout(const std::string& prefix) {
  std::vector<std::string> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, prefix.c_str(), prefix.size()) != 0) kept.emplace_back(*entry);
  }
  return kept;
}

}  // namespace moe
