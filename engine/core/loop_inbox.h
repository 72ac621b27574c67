// LoopInbox: the messages to the engine loop. Any thread pushes; the loop takes all at once.
#ifndef MOE_ENGINE_CORE_LOOP_INBOX_H_
#define MOE_ENGINE_CORE_LOOP_INBOX_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/schedule/request.h"

namespace moe {

struct LoopMessage {
  enum class Kind {
    kSubmit,
    kCancel,
    kAbort,
    kStopChoice,
    kAbortAll,
    kFlush,
    kRebalance,
    kWake,  // look at your flags
  };
  Kind kind = Kind::kWake;
  uint64_t handle = 0;
  uint32_t choice = 0;                         // kStopChoice
  std::shared_ptr<const Request> request;      // kSubmit
  std::shared_ptr<ResponseSink> sink;          // kSubmit
  double time = 0;                             // kSubmit: when it came
  std::function<void(int64_t)> done;           // kFlush: called on the loop's thread with the result
  int64_t redundant_experts = 0;               // kRebalance
  std::function<void(const Status&)> settled;  // kRebalance
};

class LoopInbox {
 public:
  void Push(LoopMessage message) {
    {
      std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
      any_ = true;
    }
    arrived_.notify_one();
  }

  // Puts everything that has come into `out`, in order; false when there is nothing, which takes no lock to see.
  bool TakeAll(std::vector<LoopMessage>& out) {
    out.clear();
    if (!any_) return false;
    std::lock_guard lock(mutex_);
    out.swap(messages_);
    any_ = false;
    return true;
  }

  // Sleeps until there is a message.
  void Wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !messages_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<LoopMessage> messages_;  // guarded by mutex_
  std::atomic<bool> any_{false};       // whether it is not empty; written under mutex_
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_LOOP_INBOX_H_
