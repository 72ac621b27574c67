// How a `moe serve` process takes part in a group of rank processes, as flags say it (commands/rank_flags.h).
#ifndef MOE_SERVER_RANKS_RANK_OPTIONS_H_
#define MOE_SERVER_RANKS_RANK_OPTIONS_H_

#include <string>

namespace moe {

struct RankOptions {
  int local_ranks = -1;     // processes that the front starts here; −1: all
  bool in_process = false;  // threads of the front instead
  // The front's control port listens there, and its local ranks exchange rows there; with `join`: this rank's address
  // for the exchange.
  std::string host = "127.0.0.1";
  int port = 0;           // of the control port; 0: a free one
  std::string interface;  // exchange there instead of at `host`
  bool trusted_network = false;
  std::string secret_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  double heartbeat_timeout_seconds = 1.0;
  double restart_delay_seconds = 1.0;  // RankLauncherOptions::first_delay_seconds; 0: none

  std::string join;  // HOST:PORT of a front: this process is a rank of it
  bool rejoin = false;
  double join_timeout_seconds = 60;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_OPTIONS_H_
