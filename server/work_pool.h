// WorkPool: a few threads that run jobs in the order they came. Two of them keep text work off the gRPC and engine
// threads: one for prompts (templates and tokenization, where a hostile template may cost a second) and one for
// outputs, so that the first never delays the second.
#ifndef MOE_SERVER_WORK_POOL_H_
#define MOE_SERVER_WORK_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moe {

class WorkPool {
 public:
  explicit WorkPool(int num_threads);
  // Runs what was scheduled, then joins.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  void Schedule(std::function<void()> job);
  // False, and nothing scheduled, when `max_waiting` jobs wait already.
  bool TrySchedule(std::function<void()> job, size_t max_waiting);

 private:
  void Loop();
  void Stop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace moe

#endif  // MOE_SERVER_WORK_POOL_H_
