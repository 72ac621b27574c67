#include "server/ranks/rank_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace moe {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool RankEventQueue::Push(RankTransport::Event event) {
  bool waited = false;
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    waited = waiting_ && events_.size() == 1;
  }
  if (waited) came_.notify_one();
  return !waited;
}

void RankEventQueue::Wake() const {
  std::function<void()> wake;
  {
    std::lock_guard lock(mutex_);
    wake = wake_;
  }
  if (wake) wake();
}

std::optional<RankTransport::Event> RankEventQueue::Wait(double until) {
  constexpr double kLongest = 3600;  // far beyond what the clock's own type holds: "for ever" comes as infinity
  std::unique_lock lock(mutex_);
  if (events_.empty() && until > SteadySeconds()) {
    waiting_ = true;
    while (events_.empty()) {
      const double left = until - SteadySeconds();
      if (!(left > 0)) break;
      came_.wait_for(lock, std::chrono::duration<double>(std::min(left, kLongest)));
    }
    waiting_ = false;
  }
  if (events_.empty()) return std::nullopt;
  RankTransport::Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void RankEventQueue::Forget(RankTransport::LinkId link) {
  std::lock_guard lock(mutex_);
  std::erase_if(events_, [link](const RankTransport::Event& event) { return event.link == link; });
}

void RankEventQueue::SetWake(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

}  // namespace moe
