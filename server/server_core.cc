#include "server/server_core.h"

#include <algorithm>
#include <utility>

#include "parallel/base/log.h"
#include "parallel/worker_pool.h"

namespace moe {
namespace {

// Work waits and no step has ended for this long: the engine is stuck.
constexpr double kEngineStuckSeconds = 10;

int PoolThreads() {
  return std::clamp(UsableCores() / 4, 1, 4);
}

}  // namespace

ServerCore::ServerCore(std::string name, const ServerOptions& options)
    : limits_(options.limits),
      stream_limits_(options.stream),
      max_waiting_prompts_(static_cast<size_t>(std::max<int64_t>(1, options.engine.max_queue))),
      max_message_bytes_(options.max_message_bytes),
      host_(std::move(name)),
      output_pool_(PoolThreads()),
      // Two at least: one slow template must not hold up every other prompt.
      prompt_pool_(std::max(2, PoolThreads())) {}

GenerateCall::Environment ServerCore::CallEnvironment(ServedModel* model) {
  return {model,          &prompt_pool_,    &output_pool_,        &counters_,
          stream_limits_, &stream_backlog_, max_waiting_prompts_, max_message_bytes_};
}

void ServerCore::Drain(double deadline_seconds, std::function<void(uint32_t, uint32_t)> done) {
  host_.BeginDrain();
  PendingDrain drain;
  drain.at_start = static_cast<uint32_t>(calls_.size());
  drain.has_deadline = deadline_seconds > 0;
  // A year is as good as any longer deadline, and does not overflow the clock.
  const auto wait = std::chrono::duration<double>(std::min(deadline_seconds, 365.0 * 86400));
  drain.deadline =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait);
  drain.done = std::move(done);
  {
    std::lock_guard lock(drains_mutex_);
    drains_.push_back(std::move(drain));
  }
  CheckDrains();
}

void ServerCore::CheckDrains() {
  const auto now = std::chrono::steady_clock::now();
  const bool idle = calls_.size() == 0;
  std::vector<PendingDrain> ended;
  {
    std::lock_guard lock(drains_mutex_);
    for (PendingDrain& drain : drains_) {
      if (drain.has_deadline && now >= drain.deadline && !idle) {
        drain.cancelled += calls_.AbortAll();
        drain.has_deadline = false;
      }
    }
    if (!idle) return;
    ended.swap(drains_);
  }
  for (const PendingDrain& drain : ended) {
    drain.done(drain.at_start - std::min(drain.at_start, drain.cancelled), drain.cancelled);
  }
}

void ServerCore::WatchEngine() {
  const ServedModel* served = host_.model();
  if (served == nullptr) return;
  const Status health = served->engine->Health(kEngineStuckSeconds);
  if (health.ok() != engine_was_healthy_) {
    engine_was_healthy_ = health.ok();
    const EngineStats stats = served->engine->Stats();
    if (health.ok()) {
      MOE_LOG(kInfo) << "the engine makes progress again";
    } else {
      MOE_LOG(kError) << "the engine is not healthy: " << health.message() << " (running " << stats.running
                      << ", waiting " << stats.waiting << ", K/V blocks used " << stats.kv_blocks_used << " of "
                      << stats.kv_blocks_total << ", steps " << stats.steps << ")";
    }
  }
  host_.SetHealth(health, served->engine->WaitsForRanks());
}

void ServerCore::Tick() {
  WatchEngine();
  calls_.CheckStalls(GenerateCall::Clock::now());
  CheckDrains();
}

}  // namespace moe
