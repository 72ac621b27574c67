// RankEventQueue: what the links of a GrpcRankTransport have to say, for the one thread that waits.
#ifndef MOE_SERVER_RANKS_RANK_EVENTS_H_
#define MOE_SERVER_RANKS_RANK_EVENTS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "engine/core/rank_transport.h"

namespace moe {

// Seconds of the steady clock.
double SteadySeconds();

class RankEventQueue {
 public:
  // True when nobody waits for this one: the caller calls Wake then, holding no lock.
  bool Push(RankTransport::Event event);
  void Wake() const;
  // The next event; waits until then (SteadySeconds; in the past: does not wait).
  std::optional<RankTransport::Event> Wait(double until);
  // Drops what is queued of a link.
  void Forget(RankTransport::LinkId link);
  void SetWake(std::function<void()> wake);

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<RankTransport::Event> events_;  // guarded by mutex_, as all below
  bool waiting_ = false;
  std::function<void()> wake_;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_EVENTS_H_
