// RankTransport: how the front reaches rank processes: connections that carry RankReports and RankOrders in order, and
// end. It knows nothing of slots and generations. The server's form is gRPC (server/ranks); tests and the simulation
// have their own, with their own clock.
//
// It also watches liveness: a rank from which no sign of life came for the heartbeat timeout is closed as if its
// connection had ended. (Signs come from a thread of the rank that never computes.)
#ifndef MOE_ENGINE_CORE_RANK_TRANSPORT_H_
#define MOE_ENGINE_CORE_RANK_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "engine/core/rank_messages.h"

namespace moe {

class RankTransport {
 public:
  using LinkId = uint64_t;  // one connection; an id is never used again

  struct Closed {
    std::string reason;
  };
  // Link 0 is none: RankFailed of it says that a rank process of this host cannot run (before any rank has loaded), so
  // waiting for it is of no use.
  struct Event {
    LinkId link = 0;
    std::variant<RankReport, Closed> what;  // Closed: the last one of the link
  };

  virtual ~RankTransport() = default;

  // Seconds, never back.
  virtual double Now() const = 0;

  // The next event, in order for each link; waits until `until` (as Now; in the past: does not wait). One thread calls
  // Wait, Send and Close.
  virtual std::optional<Event> Wait(double until) = 0;
  // Hands over and does not wait for the rank. Nothing happens on a closed link.
  virtual void Send(LinkId link, RankOrder order) = 0;
  // Fences: no event of the link comes any more. The rank is told, and a local process is ended, if either can be.
  virtual void Close(LinkId link, const std::string& reason) = 0;

  // `wake` is called, on any thread, when an event has come that nobody waits for. Set before the first Wait.
  virtual void SetWake(std::function<void()> wake) = 0;

  // Grows while any rank computes. Any thread.
  virtual uint64_t Heartbeat() const = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_TRANSPORT_H_
