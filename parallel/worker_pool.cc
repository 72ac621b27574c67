#include "parallel/worker_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/cpu_pause.h"

namespace moe {
namespace {

// About 20–50 µs of spinning before a thread sleeps: longer than the gap between two operations of a step, far shorter
// than a scheduler tick.
constexpr int kSpins = 2000;

}  // namespace

struct WorkerPool::State {
  // A generation counter announces work; `pending` counts the workers that have not finished it. Both are futex-backed
  // atomics (C++20 wait/notify), so a waiting thread sleeps after its spins.
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int32_t> pending{0};
  alignas(64) std::atomic<int64_t> counter{0};
  std::atomic<bool> stop{false};
  RawFn fn = nullptr;
  void* context = nullptr;
  std::vector<std::thread> threads;
  bool may_spin = true;  // more threads than processors: spinning would keep the one that has work from running

  void Work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      uint32_t now = generation.load(std::memory_order_acquire);
      for (int i = 0; now == seen && may_spin && i < kSpins; ++i) {
        CpuPause();
        now = generation.load(std::memory_order_acquire);
      }
      while (now == seen) {
        generation.wait(seen, std::memory_order_acquire);
        now = generation.load(std::memory_order_acquire);
      }
      seen = now;
      if (stop.load(std::memory_order_acquire)) return;
      fn(context, thread);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void Stop() {
    stop.store(true, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (std::thread& t : threads) t.join();
  }
};

WorkerPool::WorkerPool(int num_threads) : num_threads_(std::max(1, num_threads)), state_(std::make_unique<State>()) {
  state_->may_spin = num_threads_ <= UsableCores();
  try {
    for (int i = 1; i < num_threads_; ++i) state_->threads.emplace_back([this, i] { state_->Work(i); });
  } catch (...) {  // the system refuses a thread: the others must not outlive this
    state_->Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  state_->Stop();
}

void WorkerPool::RunImpl(RawFn fn, void* context) {
  if (num_threads_ == 1) {
    fn(context, 0);
    return;
  }
  state_->fn = fn;
  state_->context = context;
  state_->pending.store(num_threads_ - 1, std::memory_order_release);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  fn(context, 0);
  int32_t left = state_->pending.load(std::memory_order_acquire);
  for (int i = 0; left != 0 && state_->may_spin && i < kSpins; ++i) {
    CpuPause();
    left = state_->pending.load(std::memory_order_acquire);
  }
  while (left != 0) {
    state_->pending.wait(left, std::memory_order_acquire);
    left = state_->pending.load(std::memory_order_acquire);
  }
}

void WorkerPool::ResetCounter() {
  state_->counter.store(0, std::memory_order_relaxed);
}
int64_t WorkerPool::NextTask() {
  return state_->counter.fetch_add(1, std::memory_order_relaxed);
}

int UsableCores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    const double limit = std::strtod(quota.c_str(), nullptr) / period;
    if (limit > 0) cores = std::min(cores, static_cast<int>(std::ceil(limit)));
  }
  return std::max(1, cores);
}

}  // namespace moe
