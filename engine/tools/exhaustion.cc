#include "engine/tools/exhaustion.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "engine/tools/commands.h"
#include "parallel/base/log_plain.h"

namespace moe {
namespace {

constexpr char kNoMemory[] =
    "out of memory; what this process may use is limited by the machine, the container and ulimit -v";
constexpr char kNoThread[] =
    "the system refuses a thread or another resource; see the limits of the container and of ulimit -u and -v";
constexpr char kNeither[] =
    "a library got no memory or no thread and gave up; see the limits of the container and of ulimit -u and -v";

std::atomic<int> g_exit_code{kExitModel};

[[noreturn]] void Leave(const char* why) {
  LogPlain(LogLevel::kError, why);
  std::_Exit(g_exit_code);
}

void OnTerminate() {
  if (const std::exception_ptr thrown = std::current_exception(); thrown != nullptr) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      Leave(kNoMemory);
    } catch (const std::system_error&) {
      Leave(kNoThread);
    } catch (const std::exception& other) {
      MOE_LOG(kError) << "unexpected: " << other.what();
    } catch (...) {
    }
  } else if (std::uncaught_exceptions() > 0) {
    Leave(kNeither);  // on its way through an object with a running thread, which nothing else of ours throws past
  }
  std::abort();
}

extern "C" void OnAbort(int) {
  Leave(kNeither);
}

}  // namespace

void ExplainExhaustion() {
  std::set_terminate(OnTerminate);
}

void SetExhaustionExitCode(int code) {
  g_exit_code = code;
}

Status CatchExhaustion(const std::function<Status()>& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(kNoMemory);
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError(kNoThread);
  }
}

int ExitCodeOf(const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    LogPlain(LogLevel::kError, kNoMemory);
  } catch (const std::system_error&) {
    LogPlain(LogLevel::kError, kNoThread);
  }
  return g_exit_code;
}

AbortMeansExhaustion::AbortMeansExhaustion() : before_(std::signal(SIGABRT, OnAbort)) {}

AbortMeansExhaustion::~AbortMeansExhaustion() {
  std::signal(SIGABRT, before_);
}

}  // namespace moe
