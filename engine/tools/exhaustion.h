// Memory or threads that the system refuses: an ERROR line and an exit code, never a bare abort.
#ifndef MOE_ENGINE_TOOLS_EXHAUSTION_H_
#define MOE_ENGINE_TOOLS_EXHAUSTION_H_

#include <functional>

#include "parallel/base/status.h"

namespace moe {

// First in main: also where nobody catches it (on a library's thread), std::bad_alloc or std::system_error is an ERROR
// line and kExitModel, or the code set last.
void ExplainExhaustion();
// From now on: a process that has started fails otherwise than one that starts.
void SetExhaustionExitCode(int code);

// What `run` returns; RESOURCE_EXHAUSTED in place of the two exceptions.
Status CatchExhaustion(const std::function<Status()>& run);
// Likewise, for main: after an ERROR line the code that is set.
int ExitCodeOf(const std::function<int()>& run);

// While it lives, abort() ends the process in the same way: gRPC calls it when it gets no thread.
class AbortMeansExhaustion {
 public:
  AbortMeansExhaustion();
  ~AbortMeansExhaustion();
  AbortMeansExhaustion(const AbortMeansExhaustion&) = delete;
  AbortMeansExhaustion& operator=(const AbortMeansExhaustion&) = delete;

 private:
  void (*before_)(int);
};

}  // namespace moe

#endif  // MOE_ENGINE_TOOLS_EXHAUSTION_H_
