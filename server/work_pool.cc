#include "server/work_pool.h"

#include <utility>

namespace moe {

WorkPool::WorkPool(int num_threads) {
  threads_.reserve(num_threads);
  try {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Loop(); });
  } catch (...) {  // the system refuses a thread: the others must not outlive this
    Stop();
    throw;
  }
}

WorkPool::~WorkPool() {
  Stop();
}

void WorkPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkPool::Schedule(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

bool WorkPool::TrySchedule(std::function<void()> job, size_t max_waiting) {
  {
    std::lock_guard lock(mutex_);
    if (jobs_.size() >= max_waiting) return false;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void WorkPool::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds is released outside the lock
    lock.lock();
  }
}

}  // namespace moe
