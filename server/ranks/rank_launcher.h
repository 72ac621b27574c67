// RankLauncher: rank processes of this host, as children of the front: started, started again when they die, ended.
//
// A child is this same binary with other arguments. It dies with the front (PR_SET_PDEATHSIG), has its own process
// group (Ctrl-C reaches the front alone), no open files but standard input (empty), output and error, and default
// signals. The secret goes through its environment, never through its command line.
#ifndef MOE_SERVER_RANKS_RANK_LAUNCHER_H_
#define MOE_SERVER_RANKS_RANK_LAUNCHER_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

struct RankLauncherOptions {
  int count = 0;
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments;    // with the name of the program in front
  std::vector<std::string> environment;  // "NAME=value", added to ours without the MOE_… variables, which are flags

  // A child that lived for less than quick_death_seconds starts again after 0, then first_delay, then twice the last
  // one … up to max_delay; one that lived longer at once.
  double quick_death_seconds = 10;
  double first_delay_seconds = 1;
  double max_delay_seconds = 30;
  double arrival_seconds = 120;  // from the start until it has to have joined; then it is started again
  double end_grace_seconds = 2;  // from SIGTERM to SIGKILL, at the end

  // Asked when a child has died by itself, on the launcher's thread: whether to start it again. `how`: for people.
  // exit_code: −1 when a signal ended it.
  std::function<bool(const std::string& process, int exit_code, const std::string& how)> on_exit;
};

class RankLauncher {
 public:
  // Returns when the processes have been started (not when they run: that of a bad executable is seen as an exit 127).
  static StatusOr<std::unique_ptr<RankLauncher>> Start(RankLauncherOptions options);
  // SIGTERM to all, SIGKILL to those left after the grace; all are reaped when it returns.
  virtual ~RankLauncher() = default;

  // `process`: the random name that a child has in kRankProcessVariable; each start has a new one. All below: any
  // thread; nothing happens for names that are not of a running child.
  virtual bool Knows(const std::string& process) const = 0;
  // SIGKILL after so many seconds, if it still runs then. It is started again.
  virtual void Kill(const std::string& process, double after_seconds) = 0;
  // It has joined.
  virtual void Arrived(const std::string& process) = 0;
  // It was told to leave: it is not started again.
  virtual void LetGo(const std::string& process) = 0;
  // None is started any more.
  virtual void LetAllGo() = 0;

  virtual std::vector<pid_t> pids() const = 0;  // that run now
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_LAUNCHER_H_
