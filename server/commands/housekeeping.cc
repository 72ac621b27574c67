#include "server/commands/housekeeping.h"

#include <algorithm>

#include "parallel/base/log.h"
#include "server/server_core.h"

namespace moe {
namespace {

constexpr std::chrono::seconds kStatusInterval{10};

}  // namespace

Housekeeping::Housekeeping(ServerCore* core)
    : core_(core), next_status_(std::chrono::steady_clock::now() + kStatusInterval), thread_([this] { Loop(); }) {}

Housekeeping::~Housekeeping() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Housekeeping::Hurry() {
  {
    std::lock_guard lock(mutex_);
    hurry_ = true;
  }
  wake_.notify_all();
}

void Housekeeping::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    core_->Tick();
    if (const auto now = std::chrono::steady_clock::now(); now >= next_status_) {
      next_status_ = now + kStatusInterval;
      LogStatus();
    }
    const bool draining = core_->host().state() == ModelHost::State::kDraining;
    lock.lock();
    const auto interval = std::chrono::milliseconds(hurry_ || draining ? 10 : 250);
    const bool hurried = hurry_;
    wake_.wait_for(lock, interval, [&] { return stopping_ || hurry_ != hurried; });
  }
}

void Housekeeping::LogStatus() {
  const ServedModel* served = core_->host().model();
  if (served == nullptr) return;
  const EngineStats stats = served->engine->Stats();
  const uint64_t prompt = stats.prompt_tokens_computed - last_prompt_tokens_;
  const uint64_t generated = stats.generated_tokens - last_generated_tokens_;
  last_prompt_tokens_ = stats.prompt_tokens_computed;
  last_generated_tokens_ = stats.generated_tokens;
  if (prompt == 0 && generated == 0 && stats.running == 0 && stats.waiting == 0) return;
  const double seconds = static_cast<double>(kStatusInterval.count());
  MOE_LOG(kInfo) << "prompt " << static_cast<double>(prompt) / seconds << " tok/s, generation "
                 << static_cast<double>(generated) / seconds << " tok/s, running " << stats.running << ", waiting "
                 << stats.waiting << ", K/V "
                 << 100 * stats.kv_blocks_used / std::max<int64_t>(1, stats.kv_blocks_total) << " %";
}

}  // namespace moe
