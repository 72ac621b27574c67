// The communicator over connected Gloo pairs (gloo_group.h has the contract). Internal: includes Gloo's headers.
//
// What Gloo leaves to us, and how it is done here:
//  - It wakes a blocked wait only if the lost connection had not begun to carry that message. So every pair keeps one
//    more receive posted, the watch, with a thread that waits on it; a lost connection always wakes that one. It also
//    receives notices: why a rank closes, or that it leaves in order.
//  - A wait that times out closes every pair. So waits never time out; the keeper thread watches the deadline, first
//    sends the notices, then closes, then wakes the waiting call. Nothing touches the caller's memory after a call
//    has returned: a failed call returns only when all pairs are closed.
//
// Who is to blame for a timeout: exchange_blame.h.
#ifndef MOE_PARALLEL_GLOO_COMMUNICATOR_H_
#define MOE_PARALLEL_GLOO_COMMUNICATOR_H_

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/exchange_blame.h"
#include "parallel/group_options.h"

namespace moe {

class GlooCommunicator final : public Communicator {
 public:
  // `context`: all pairs connected; null for a group of one.
  GlooCommunicator(std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::transport::Context> context,
                   int rank, int size, std::chrono::milliseconds timeout);
  ~GlooCommunicator() override;

  // Starts watching and proves to every peer that the one at this end knows the nonce it published, before anything
  // else: a stranger may have been faster than the peer. Called once, by all ranks.
  Status Greet(uint64_t generation, const std::vector<Nonce>& nonces, std::chrono::milliseconds timeout);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status AllToAllV(std::span<const std::span<const std::byte>> send, std::span<const std::span<std::byte>> recv,
                   const ExchangeLabel& label) override;
  Status AllGather(std::span<const int32_t> mine, std::span<int32_t> all, const ExchangeLabel& label) override;
  Status Broadcast(std::span<std::byte> bytes, int root, const ExchangeLabel& label) override;
  Status Barrier(const ExchangeLabel& label) override;
  void SetTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void Abort(const std::string& reason) override;

 private:
  using Clock = std::chrono::steady_clock;

  // What a rank says to the others before it closes.
  struct Notice {
    uint32_t kind = 0;
    int32_t rank = 0;  // the lost or missing one; -1: none
    uint64_t operation = 0;
    uint32_t length = 0;
    char text[1004] = {};
  };

  // Sends parts_out_[r] to and receives parts_in_[r] from every peer r; an empty part is no message.
  Status Exchange(const ExchangeLabel& label, std::chrono::milliseconds timeout);
  void Post();
  void PostSmallReceive(int peer, uint64_t number);
  bool WaitReceive(int peer);
  bool Await();  // false: the group failed
  Status Begin(const ExchangeLabel& label, std::chrono::milliseconds timeout);
  Status Finish();
  Status Broken(const std::string& what);  // returns when nothing touches the caller's memory any more

  void Start();
  void Watch(int peer);
  void TakeNotice(int peer, const Notice& notice);
  void Keep();
  void PostNotice();
  void AwaitNotice();
  void CloseAll();
  void Fail(const Status& failure);
  // mutex_ is held in these:
  void Lose(int peer, const std::string& how);
  void SettleLoss(std::unique_lock<std::mutex>& lock);
  void Judge();
  template <typename Fn>
  void ForEachPeer(Fn&& fn) const {  // each rank begins with its neighbour, so that not all rush to rank 0
    for (int i = 1; i < size_; ++i) fn((rank_ + i) % size_);
  }

  const int rank_;
  const int size_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;

  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  // Small parts arrive in memory of ours, whose receives are posted kAhead messages ahead: Gloo sends only to a posted
  // receive, and so the sender need not wait for word of it.
  static constexpr size_t kSmall = size_t{64} << 10;
  static constexpr uint64_t kAhead = 2;
  struct Inbox {
    std::array<Buffer, kAhead> buffers;
    std::vector<std::byte> bytes;  // kAhead parts
    uint64_t next_in = 0;          // number of the next small message from, and to, this peer
    uint64_t next_out = 0;
  };
  std::vector<Inbox> inboxes_;  // per peer

  std::vector<Buffer> receive_;  // per peer, for the call in flight
  std::vector<Buffer> send_;
  std::vector<Buffer> watch_;
  std::vector<Buffer> notify_;
  Buffer close_;
  std::vector<Notice> notices_;  // per peer: where its notice arrives
  Notice notice_;                // ours
  std::vector<bool> notified_;   // per peer: ours is on its way

  std::vector<std::span<const std::byte>> parts_out_;
  std::vector<std::span<std::byte>> parts_in_;
  std::vector<std::byte> barrier_bytes_;
  uint64_t next_slot_ = 0;   // number of the operation; changes only with mutex_ held
  std::atomic<int> at_{-1};  // the peer that the call in flight deals with

  std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;                  // all below guarded by mutex_
  int lost_ = -1;                   // the rank whose loss is the failure
  bool told_ = false;               // another rank has said so
  std::string loss_;                // how and where it was noticed
  std::vector<bool> disconnected_;  // per peer
  bool in_call_ = false;
  ExchangeLabel label_;
  std::chrono::milliseconds call_timeout_{0};
  Clock::time_point deadline_;
  Clock::time_point wake_at_;
  bool judging_ = false;                 // collecting reports about a timeout
  std::vector<ExchangeReport> reports_;  // per rank
  int silent_ = 0;                       // peers from which neither a notice nor the end of the connection has come
  bool leaving_ = false;
  bool closed_ = false;

  std::thread keeper_;
  std::vector<std::thread> watchers_;
};

}  // namespace moe

#endif  // MOE_PARALLEL_GLOO_COMMUNICATOR_H_
