// Housekeeping: the thread that ticks ServerCore, and under load prints a status line every ten seconds.
#ifndef MOE_SERVER_COMMANDS_HOUSEKEEPING_H_
#define MOE_SERVER_COMMANDS_HOUSEKEEPING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace moe {

class ServerCore;

class Housekeeping {
 public:
  // `core` outlives this.
  explicit Housekeeping(ServerCore* core);
  ~Housekeeping();

  // Ticks often from now on: a drain wants to see its end soon.
  void Hurry();

 private:
  void Loop();
  void LogStatus();

  ServerCore* const core_;
  std::chrono::steady_clock::time_point next_status_;
  uint64_t last_prompt_tokens_ = 0;
  uint64_t last_generated_tokens_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  bool hurry_ = false;     // guarded by mutex_
  std::thread thread_;
};

}  // namespace moe

#endif  // MOE_SERVER_COMMANDS_HOUSEKEEPING_H_
