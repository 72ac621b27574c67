// FakeEngine: an Engine that computes nothing. Every choice gets the tokens of a script, one a step, on a thread of its
// own; the test decides how fast, or steps by hand.
#ifndef MOE_TESTS_SERVER_FAKE_ENGINE_H_
#define MOE_TESTS_SERVER_FAKE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/engine.h"
#include "loaders/model_loader.h"

namespace moe::testing {

struct FakeEngineOptions {
  int64_t max_model_len = 512;
  int64_t max_running = 64;
  int64_t max_queue = 64;
  std::chrono::microseconds step{0};  // time of a step
  // Tokens of choice `choice` of a request, repeated for ever.
  std::function<std::vector<int32_t>(const Request&, uint32_t choice)> script;
};

class FakeEngine final : public Engine {
 public:
  FakeEngine(std::unique_ptr<LoadedModel> model, FakeEngineOptions options);
  ~FakeEngine() override;

  const LoadedModel& model() const override { return *model_; }
  const EngineInfo& info() const override { return info_; }
  StatusOr<uint64_t> Submit(Request request, std::shared_ptr<ResponseSink> sink) override;
  void Cancel(uint64_t handle) override { Mark(handle, Wish::kCancel); }
  void Abort(uint64_t handle) override { Mark(handle, Wish::kAbort); }
  void StopChoice(uint64_t handle, uint32_t choice) override;
  void StopAccepting() override { accepting_ = false; }
  int64_t Unfinished() const override;
  void AbortAll() override;
  int64_t FlushPrefixCache() override { return 7; }
  void Rebalance(int64_t, std::function<void(const Status&)> done) override {
    done(UnsupportedError("there is one rank: nothing to balance"));
  }
  EngineStats Stats() const override;
  Status Health(double limit_seconds) const override;

  // While paused nothing is stepped; cancels still work.
  void Pause(bool paused);
  void SetHealth(const Status& status);
  void AddExpertTokens(int64_t layer, size_t expert, uint64_t tokens);  // may wrap: tests of counters
  std::vector<Request> submitted() const;
  uint64_t cancelled() const { return cancelled_; }

 private:
  enum class Wish { kNone, kCancel, kAbort };
  struct Choice {
    std::vector<int32_t> script;
    int64_t made = 0;
    bool finished = false;
    bool stopped = false;
  };
  struct Running {
    Request request;
    std::shared_ptr<ResponseSink> sink;
    std::vector<Choice> choices;
    Wish wish = Wish::kNone;
    bool started = false;
    std::chrono::steady_clock::time_point arrived;
  };

  void Mark(uint64_t handle, Wish wish);
  void Loop();
  // True when the request is over. Called without the mutex.
  bool Step(Running* running, Wish wish, const std::vector<bool>& stopped);
  OutputChunk NextToken(Running* running, uint32_t choice);

  const std::unique_ptr<LoadedModel> model_;
  const FakeEngineOptions options_;
  EngineInfo info_;
  std::atomic<bool> accepting_{true};
  std::atomic<uint64_t> cancelled_{0};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  bool stopping_ = false;
  bool paused_ = false;
  Status health_;
  EngineStats stats_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, std::shared_ptr<Running>> requests_;
  std::vector<Request> submitted_;
  std::thread thread_;
};

}  // namespace moe::testing

#endif  // MOE_TESTS_SERVER_FAKE_ENGINE_H_
