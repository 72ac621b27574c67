// StartChild: fork and exec for a process that must not outlive this one.
#ifndef MOE_SERVER_RANKS_CHILD_PROCESS_H_
#define MOE_SERVER_RANKS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// The child is killed when the calling *thread* ends. It gets its own process group, default signals, standard input
// from /dev/null, our standard output and error and no other file. An executable that cannot run: exit code 127.
StatusOr<pid_t> StartChild(const std::string& executable, const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment);

// "exited with code 3", "was ended by signal 9 (Killed)". wait_status: waitpid's.
std::string ExitText(int wait_status);

// Our environment without the variables that begin with `prefix`.
std::vector<std::string> EnvironmentWithout(const std::string& prefix);

}  // namespace moe

#endif  // MOE_SERVER_RANKS_CHILD_PROCESS_H_
