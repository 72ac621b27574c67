// WorkerPool: the threads of one CPU rank. The caller is thread 0; the others wait for work by spinning briefly, then
// sleeping, so an idle server uses no processor time.
#ifndef MOE_PARALLEL_WORKER_POOL_H_
#define MOE_PARALLEL_WORKER_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace moe {

class WorkerPool {
 public:
  // num_threads ≥ 1, the caller included.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls fn(thread) once on every thread, thread in [0, num_threads), and returns when all are done.
  // One caller at a time; not reentrant.
  template <typename Fn>
  void Run(Fn&& fn) {
    auto call = [](void* context, int thread) { (*static_cast<std::remove_reference_t<Fn>*>(context))(thread); };
    RunImpl(call, &fn);
  }

  // Calls fn(task) once for each task in [0, count). Tasks are handed out in order from a shared counter, so their
  // results must not depend on which thread runs them.
  template <typename Fn>
  void ParallelFor(int64_t count, Fn&& fn) {
    if (count <= 0) return;
    if (num_threads_ == 1 || count == 1) {
      for (int64_t i = 0; i < count; ++i) fn(i);
      return;
    }
    ResetCounter();
    Run([&](int) {
      for (int64_t i = NextTask(); i < count; i = NextTask()) fn(i);
    });
  }

 private:
  using RawFn = void (*)(void* context, int thread);
  void RunImpl(RawFn fn, void* context);
  void ResetCounter();
  int64_t NextTask();

  int num_threads_;
  struct State;
  std::unique_ptr<State> state_;
};

// Processors this process may use (its affinity mask, and the container's CPU quota rounded up); at least 1.
int UsableCores();

}  // namespace moe

#endif  // MOE_PARALLEL_WORKER_POOL_H_
