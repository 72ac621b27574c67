// RankPort: a rank's end of its connection to the front (RankTransport is the other one).
#ifndef MOE_ENGINE_CORE_RANK_PORT_H_
#define MOE_ENGINE_CORE_RANK_PORT_H_

#include <functional>

#include "engine/core/rank_messages.h"

namespace moe {

class RankPort {
 public:
  virtual ~RankPort() = default;

  // Any thread; does not wait for the front. On a lost connection nothing happens (Run ends).
  virtual void Report(RankReport report) = 0;

  // Reads orders and hands each to `take`, on this thread, until the connection ends. `take` does not block. Returns
  // why it ended: OK after StopRank.
  virtual Status Run(const std::function<void(RankOrder)>& take) = 0;

  // Makes Run return, once what was reported has gone out or a second is over. Any thread, also within `take`.
  virtual void Close() = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_PORT_H_
