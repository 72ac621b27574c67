// What `moe serve` is told, after flags and environment are read and checked.
#ifndef MOE_SERVER_SERVER_OPTIONS_H_
#define MOE_SERVER_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/engine_options.h"
#include "parallel/base/log.h"
#include "server/ranks/rank_options.h"

namespace moe {

// Bounds on a single request (request_mapping.h) and call.
struct RequestLimits {
  uint32_t max_n = 128;
  uint32_t max_stop_strings = 64;
  uint32_t max_stop_bytes = 1024;  // of one stop string
  uint32_t max_stop_tokens = 1024;
  uint32_t max_identifier_bytes = 256;  // request_id, cache_salt
  uint32_t max_chat_messages = 4096;
};

// How long, and with how much, a stream waits for a client that does not read it; then the request is cancelled with
// RESOURCE_EXHAUSTED. See GenerateCall.
struct StreamLimits {
  int64_t max_backlog_bytes = 512 << 10;             // with more than this waiting, …
  double backlog_seconds = 10;                       // … a client has to take something within this time
  int64_t hard_backlog_bytes = 64 << 20;             // of one stream, however lively its client
  int64_t total_backlog_bytes = int64_t{512} << 20;  // of all streams: then those above max_backlog_bytes go
  double stall_seconds = 60;                         // a message that nobody took for this long, whatever waits
};

struct ServerOptions {
  std::string model;              // a directory; empty: the embedded demo
  std::string served_model_name;  // empty: the directory's last part
  std::string host = "127.0.0.1";
  int port = 50051;       // 0: a free one
  int admin_port = 9400;  // 0: none
  int64_t max_message_bytes = int64_t{64} << 20;
  double shutdown_timeout_seconds = 30;
  bool metrics_per_expert = false;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  EngineOptions engine;
  RankOptions ranks;
  RequestLimits limits;
  StreamLimits stream;
  std::vector<std::string> non_default;  // "--port 50052", for the start banner
};

// Exit codes of `moe serve`.
inline constexpr int kExitDrained = 0;
inline constexpr int kExitInternal = 1;
inline constexpr int kExitBadFlags = 2;
inline constexpr int kExitBadModel = 3;
inline constexpr int kExitPortTaken = 4;

}  // namespace moe

#endif  // MOE_SERVER_SERVER_OPTIONS_H_
