// The clock of a simulation: events in the order of their times, and of their making where these are equal. One thread.
#ifndef MOE_TESTS_ENGINE_CORE_SIMULATED_WORLD_H_
#define MOE_TESTS_ENGINE_CORE_SIMULATED_WORLD_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/engine/core/simulated_clients.h"

namespace moe::toy {

// The simulation cannot go on: somebody waits for what will never be.
struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SimulatedWorld {
 public:
  // limit: seconds after which nothing may be left to do. traced: Trace prints.
  SimulatedWorld(uint64_t seed, double limit, bool traced) : dice(seed), limit_(limit), traced_(traced) {}

  Dice dice;

  double now() const { return now_; }
  // What runs now takes so long.
  void Spend(double seconds) { now_ += seconds; }
  void After(double seconds, std::function<void()> what) { events_.push({now_ + seconds, next_++, std::move(what)}); }
  // Runs the next event if it is due before `until`; else it is `until` then, and false.
  bool RunNext(double until) {
    if (events_.empty() || events_.top().time > until) {
      if (events_.empty() && until > limit_) throw Stuck("nothing will ever happen");
      if (until > now_) now_ = until;
      return false;
    }
    Event event = events_.top();
    events_.pop();
    if (event.time > now_) now_ = event.time;
    if (now_ > limit_) throw Stuck("no end in sight");
    event.what();
    return true;
  }

  bool traced() const { return traced_; }
  template <typename... Args>
  void Trace(const Args&... args) const {
    if (traced_) std::fprintf(stderr, "%10.4f  %s\n", now_, Cat(args...).c_str());
  }
  void Mistake(const std::string& what) {
    Trace("MISTAKE: ", what);
    if (mistakes.size() < 10) mistakes.push_back(Cat(now_, " s: ", what));
  }
  std::vector<std::string> mistakes;

 private:
  struct Event {
    double time = 0;
    uint64_t number = 0;
    std::function<void()> what;
    bool operator<(const Event& other) const {  // the greatest is the first in a priority queue
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  const double limit_;
  const bool traced_;
  double now_ = 0;
  uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace moe::toy

#endif  // MOE_TESTS_ENGINE_CORE_SIMULATED_WORLD_H_
