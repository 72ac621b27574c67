// The communicator over connected TCP sockets (tcp_group.h has the contract). The thread that calls an operation moves
// the bytes itself: it sends what fits, reads what is there into the caller's memory, looks again for a moment and then
// sleeps until something comes. A message so costs no more than its system calls, where a thread of the transport's own
// would have to be woken on both sides of every exchange.
//
// Two connections to each peer. On the first go the parts, each behind a header with the operation's number and the
// part's size. On the second, notices: why a rank closes, or that it leaves in order. Notices so never wait behind a
// part that is half sent.
#ifndef MOE_PARALLEL_TCP_COMMUNICATOR_H_
#define MOE_PARALLEL_TCP_COMMUNICATOR_H_

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/exchange_blame.h"
#include "parallel/file_descriptor.h"

namespace moe {

class TcpCommunicator final : public Communicator {
 public:
  struct Connections {
    FileDescriptor parts;
    FileDescriptor notices;
  };

  // connections[r]: to rank r, not blocking; none to oneself. `wake`: an eventfd, not blocking.
  TcpCommunicator(std::vector<Connections> connections, FileDescriptor wake, int rank,
                  std::chrono::milliseconds timeout);
  ~TcpCommunicator() override;

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

  struct Header {
    uint64_t operation = 0;
    uint64_t bytes = 0;
  };

  enum class NoticeKind : uint32_t { kLeaving = 1, kFailure = 2, kLost = 3, kReport = 4 };

  // What a rank says to the others before it closes.
  struct Notice {
    NoticeKind kind = NoticeKind::kLeaving;
    int32_t rank = -1;  // the lost or missing one
    uint64_t operation = 0;
    uint32_t length = 0;
    char text[1004] = {};
  };

  struct Peer {
    Connections connections;
    // Of the call in flight: the header and the part, and how much of both is through.
    Header header_out;
    Header header_in;
    std::span<const std::byte> out;
    std::span<std::byte> in;
    size_t sent = 0;
    size_t received = 0;
    bool sending = false;
    bool receiving = false;
    // Its notice, as far as it has come.
    Notice notice;
    size_t notice_bytes = 0;
    bool silent = true;  // neither a notice nor the end of the connection has come
  };

  // Sends peers_[r].out to and receives peers_[r].in from every peer r; an empty part is no message.
  Status Exchange(const ExchangeLabel& label);
  void Begin();
  bool Send(Peer& peer);     // whether anything moved
  bool Receive(Peer& peer);  // likewise
  Status Sleep(const ExchangeLabel& label);

  // Reads what has come on the notice connections of the peers; `milliseconds` to wait for the first.
  void ReadNotices(int milliseconds);
  bool ReadNotice(int r);
  Status OnNotices(const ExchangeLabel& label);
  Status OnLost(int r, const ExchangeLabel& label);
  Status OnTimeout(const ExchangeLabel& label);
  Status Lost(int r, const ExchangeLabel& label);

  static std::string TextOf(const Notice& notice);
  void TakeReport(int r);

  Status Failure();
  // The first failure counts; tells the peers and ends the sending side of every connection. Returns what counts.
  Status Fail(Status failure, Notice notice, const std::string& text);
  Status FailOutOfStep(const std::string& what);
  template <typename Fn>
  void ForEachPeer(Fn&& fn) {  // each rank begins with its neighbour, so that not all rush to rank 0
    for (int i = 1; i < size_; ++i) fn((rank_ + i) % size_);
  }

  const int rank_;
  const int size_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const FileDescriptor wake_;  // readable: the group has failed

  // Only the calling thread.
  std::vector<Peer> peers_;
  std::vector<ExchangeReport> reports_;
  std::vector<pollfd> polled_;
  std::vector<std::byte> barrier_bytes_;
  uint64_t operation_ = 0;
  Clock::time_point deadline_;
  int broken_ = -1;          // the peer whose connection is found to have ended
  std::string out_of_step_;  // a peer's header does not fit the operation
  std::atomic<bool> failed_{false};

  std::mutex mutex_;
  Status failure_;  // guarded by mutex_
};

}  // namespace moe

#endif  // MOE_PARALLEL_TCP_COMMUNICATOR_H_
