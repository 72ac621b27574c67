// Communicator: moves bytes between the ranks of a group. No arithmetic: nothing is ever added on the wire, so results
// do not depend on the number of ranks. Every rank of the group calls every operation in the same order, also with
// nothing to send.
#ifndef MOE_PARALLEL_COMMUNICATOR_H_
#define MOE_PARALLEL_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// What an exchange is for; errors name it.
struct ExchangeLabel {
  const char* phase = "";  // "counts", "dispatch", "combine", …
  int64_t layer = -1;
};

// Notes in an error which rank of the group is at fault, as far as this rank can tell; and reads it: -1, nobody is
// named.
Status BlameRank(Status status, int rank);
int BlamedRank(const Status& status);

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // send[r] goes to rank r, recv[r] is filled by rank r's send to us; sizes agree on both sides. The part for oneself
  // is copied too. A peer that does not come within the timeout, or an aborted group: UNAVAILABLE or DEADLINE_EXCEEDED
  // naming rank, phase and layer; the group is unusable from then on.
  virtual Status AllToAllV(std::span<const std::span<const std::byte>> send, std::span<const std::span<std::byte>> recv,
                           const ExchangeLabel& label) = 0;

  // all = the ranks' `mine` one after the other; every rank passes the same count.
  virtual Status AllGather(std::span<const int32_t> mine, std::span<int32_t> all, const ExchangeLabel& label) = 0;

  // The bytes of `root` reach every rank; all pass the same size.
  virtual Status Broadcast(std::span<std::byte> bytes, int root, const ExchangeLabel& label) = 0;

  virtual Status Barrier(const ExchangeLabel& label) = 0;

  // How long later operations wait for a rank, where the implementation can change it. Between two operations.
  virtual void SetTimeout(std::chrono::milliseconds timeout) { (void)timeout; }

  // Makes every pending and later call on every rank of the group fail with `reason`. Any thread.
  virtual void Abort(const std::string& reason) = 0;
};

// Ranks as threads of one process.
std::vector<std::unique_ptr<Communicator>> CreateInProcessGroup(int size, std::chrono::milliseconds timeout);

}  // namespace moe

#endif  // MOE_PARALLEL_COMMUNICATOR_H_
