#include "parallel/tcp_communicator.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "parallel/base/check.h"
#include "parallel/cpu_pause.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

// A rank that waits looks again for this long before it sleeps: waking costs about as much.
constexpr std::chrono::microseconds kSpin(50);
constexpr milliseconds kReportTimeout(100);
// For word of why a connection ended. It comes before the end itself, but on another connection.
constexpr milliseconds kLossTimeout(50);

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// The parts of (header, body) behind the first `done` bytes.
int Remainder(void* header, size_t header_bytes, void* body, size_t body_bytes, size_t done, iovec out[2]) {
  int count = 0;
  if (done < header_bytes) out[count++] = {static_cast<std::byte*>(header) + done, header_bytes - done};
  const size_t body_done = done > header_bytes ? done - header_bytes : 0;
  if (body_done < body_bytes) out[count++] = {static_cast<std::byte*>(body) + body_done, body_bytes - body_done};
  return count;
}

}  // namespace

TcpCommunicator::TcpCommunicator(std::vector<Connections> connections, FileDescriptor wake, int rank,
                                 milliseconds timeout)
    : rank_(rank),
      size_(static_cast<int>(connections.size())),
      timeout_(timeout),
      wake_(std::move(wake)),
      peers_(connections.size()),
      reports_(connections.size()),
      barrier_bytes_(connections.size() + 1) {
  for (int r = 0; r < size_; ++r) peers_[r].connections = std::move(connections[r]);
  polled_.reserve(2 * connections.size() + 1);
}

TcpCommunicator::~TcpCommunicator() {
  (void)Fail(absl::CancelledError("this rank has left the group"), Notice(), "");
  // What is left unread would turn the end of the connection into a reset, which can overtake our notice.
  ForEachPeer([&](int r) {
    char rest[4096];
    const Connections& to = peers_[r].connections;
    while (recv(to.notices.get(), rest, sizeof(rest), MSG_DONTWAIT) > 0) {
    }
  });
}

Status TcpCommunicator::AllToAllV(std::span<const std::span<const std::byte>> send,
                                  std::span<const std::span<std::byte>> recv, const ExchangeLabel& label) {
  MOE_CHECK(static_cast<int>(send.size()) == size_ && static_cast<int>(recv.size()) == size_);
  MOE_CHECK_EQ(send[rank_].size(), recv[rank_].size());
  for (int r = 0; r < size_; ++r) {
    peers_[r].out = send[r];
    peers_[r].in = recv[r];
  }
  return Exchange(label);
}

Status TcpCommunicator::AllGather(std::span<const int32_t> mine, std::span<int32_t> all, const ExchangeLabel& label) {
  MOE_CHECK_EQ(all.size(), mine.size() * static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    peers_[r].out = std::as_bytes(mine);
    peers_[r].in = std::as_writable_bytes(all.subspan(r * mine.size(), mine.size()));
  }
  return Exchange(label);
}

Status TcpCommunicator::Broadcast(std::span<std::byte> bytes, int root, const ExchangeLabel& label) {
  MOE_CHECK(root >= 0 && root < size_);
  for (int r = 0; r < size_; ++r) {
    peers_[r].out = {};
    peers_[r].in = {};
    if (rank_ == root && r != rank_) peers_[r].out = bytes;
  }
  if (rank_ != root) peers_[root].in = bytes;
  return Exchange(label);
}

Status TcpCommunicator::Barrier(const ExchangeLabel& label) {
  for (int r = 0; r < size_; ++r) {
    peers_[r].out = std::span(barrier_bytes_).subspan(size_, 1);
    peers_[r].in = std::span(barrier_bytes_).subspan(r, 1);
  }
  return Exchange(label);
}

void TcpCommunicator::Abort(const std::string& reason) {
  (void)Fail(absl::UnavailableError(reason), {.kind = NoticeKind::kFailure}, reason);
}

Status TcpCommunicator::Exchange(const ExchangeLabel& label) {
  if (failed_.load(std::memory_order_acquire)) return Failure();
  Begin();
  // A peer may have given the group up while nobody here was in a call; what it had sent before is still there.
  ReadNotices(0);
  MOE_RETURN_IF_ERROR(OnNotices(label));
  const Peer& self = peers_[rank_];
  Clock::time_point spin_end{};
  bool copied = self.in.empty();
  for (;;) {
    bool moved = false;
    bool done = true;
    ForEachPeer([&](int r) {
      Peer& peer = peers_[r];
      if (peer.sending) moved |= Send(peer);
      if (peer.receiving) moved |= Receive(peer);
      done &= !peer.sending && !peer.receiving;
    });
    if (!out_of_step_.empty()) return FailOutOfStep(out_of_step_);
    if (broken_ >= 0) return OnLost(broken_, label);
    if (!std::exchange(copied, true)) {  // while the peers' parts are on their way
      std::memmove(self.in.data(), self.out.data(), self.in.size());
      continue;
    }
    if (done) break;
    if (moved) {
      spin_end = {};
      continue;
    }
    if (failed_.load(std::memory_order_acquire)) return Failure();
    const Clock::time_point now = Clock::now();
    if (spin_end == Clock::time_point{}) spin_end = now + kSpin;
    if (now < spin_end) {
      CpuPause();
      continue;
    }
    MOE_RETURN_IF_ERROR(Sleep(label));
    spin_end = {};
  }
  ++operation_;
  return absl::OkStatus();
}

void TcpCommunicator::Begin() {
  deadline_ = Clock::now() + timeout_.load();
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[r];
    peer.sent = peer.received = 0;
    peer.sending = r != rank_ && !peer.out.empty();
    peer.receiving = r != rank_ && !peer.in.empty();
    peer.header_out = {operation_, peer.out.size()};
  }
}

bool TcpCommunicator::Send(Peer& peer) {
  iovec parts[2];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = Remainder(&peer.header_out, sizeof(Header), const_cast<std::byte*>(peer.out.data()),
                                 peer.out.size(), peer.sent, parts);
  const ssize_t n = sendmsg(peer.connections.parts.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (!WouldBlock(errno)) broken_ = static_cast<int>(&peer - peers_.data());
    return false;
  }
  peer.sent += static_cast<size_t>(n);
  peer.sending = peer.sent < sizeof(Header) + peer.out.size();
  return n > 0;
}

bool TcpCommunicator::Receive(Peer& peer) {
  iovec parts[2];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = Remainder(&peer.header_in, sizeof(Header), peer.in.data(), peer.in.size(), peer.received, parts);
  const ssize_t n = recvmsg(peer.connections.parts.get(), &message, MSG_DONTWAIT);
  const int r = static_cast<int>(&peer - peers_.data());
  if (n <= 0) {
    if (n == 0 || !WouldBlock(errno)) broken_ = r;
    return false;
  }
  const bool had_header = peer.received >= sizeof(Header);
  peer.received += static_cast<size_t>(n);
  if (!had_header && peer.received >= sizeof(Header) &&
      (peer.header_in.operation != operation_ || peer.header_in.bytes != peer.in.size())) {
    out_of_step_ = Cat("rank ", r, " sent ", peer.header_in.bytes, " bytes for operation ", peer.header_in.operation,
                       " where rank ", rank_, " expected ", peer.in.size(), " for operation ", operation_);
  }
  peer.receiving = peer.received < sizeof(Header) + peer.in.size();
  return true;
}

// Until something can be moved, or fails.
Status TcpCommunicator::Sleep(const ExchangeLabel& label) {
  polled_.clear();
  polled_.push_back({wake_.get(), POLLIN, 0});
  ForEachPeer([&](int r) {
    const Peer& peer = peers_[r];
    if (peer.silent) polled_.push_back({peer.connections.notices.get(), POLLIN, 0});
  });
  const size_t notices = polled_.size();
  ForEachPeer([&](int r) {
    const Peer& peer = peers_[r];
    const auto events = static_cast<int16_t>((peer.receiving ? POLLIN : 0) | (peer.sending ? POLLOUT : 0));
    if (events != 0) polled_.push_back({peer.connections.parts.get(), events, 0});
  });
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
  if (left <= 0) return OnTimeout(label);
  if (poll(polled_.data(), polled_.size(), static_cast<int>(std::min<int64_t>(left, 1 << 30))) <= 0) {
    return absl::OkStatus();  // a signal, or the deadline, which the next round finds
  }
  if (polled_[0].revents != 0) return Failure();
  const bool told = std::any_of(polled_.begin() + 1, polled_.begin() + static_cast<std::ptrdiff_t>(notices),
                                [](const pollfd& p) { return p.revents != 0; });
  if (!told) return absl::OkStatus();
  ReadNotices(0);
  return OnNotices(label);
}

void TcpCommunicator::ReadNotices(int milliseconds) {
  polled_.clear();
  ForEachPeer([&](int r) {
    if (peers_[r].silent) polled_.push_back({peers_[r].connections.notices.get(), POLLIN, 0});
  });
  if (polled_.empty()) return;
  (void)poll(polled_.data(), polled_.size(), milliseconds);
  ForEachPeer([&](int r) {
    while (peers_[r].silent && ReadNotice(r)) {
    }
  });
}

// False: nothing more is there now.
bool TcpCommunicator::ReadNotice(int r) {
  Peer& peer = peers_[r];
  auto* bytes = reinterpret_cast<std::byte*>(&peer.notice) + peer.notice_bytes;
  const ssize_t n = recv(peer.connections.notices.get(), bytes, sizeof(Notice) - peer.notice_bytes, MSG_DONTWAIT);
  if (n < 0 && WouldBlock(errno)) return false;
  if (n > 0) peer.notice_bytes += static_cast<size_t>(n);
  peer.silent = n > 0 && peer.notice_bytes < sizeof(Notice);
  return true;
}

// What the notices that have come mean for the operation in flight.
Status TcpCommunicator::OnNotices(const ExchangeLabel& label) {
  Status status;
  bool reported = false;
  int died = -1;
  ForEachPeer([&](int r) {
    Peer& peer = peers_[r];
    if (!status.ok() || peer.silent) return;
    if (peer.notice_bytes < sizeof(Notice)) {
      if (died < 0) died = r;
      return;
    }
    const std::string text = TextOf(peer.notice);
    switch (peer.notice.kind) {
      case NoticeKind::kLeaving:
        break;  // noticed where something is expected of it
      case NoticeKind::kFailure:
        status = Fail(absl::UnavailableError(text.empty() ? Cat("rank ", r, " gave up") : text),
                      {.kind = NoticeKind::kFailure}, text);
        break;
      case NoticeKind::kLost:
        status = Lost(std::clamp(peer.notice.rank, 0, size_ - 1), label);
        break;
      case NoticeKind::kReport:
        TakeReport(r);
        reported = true;
        break;
    }
  });
  if (!status.ok()) return status;
  if (reported) return OnTimeout(label);
  return died >= 0 ? Lost(died, label) : absl::OkStatus();
}

// A connection has ended: because its rank died, or because that rank saw another die and says so.
Status TcpCommunicator::OnLost(int r, const ExchangeLabel& label) {
  const Clock::time_point end = Clock::now() + kLossTimeout;
  for (;;) {
    ReadNotices(0);
    MOE_RETURN_IF_ERROR(OnNotices(label));
    if (failed_.load(std::memory_order_acquire)) return Failure();
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    // Nothing said, or that it leaves, while something is expected of it.
    if (!peers_[r].silent || left <= 0) return Lost(r, label);
    ReadNotices(static_cast<int>(left));
  }
}

Status TcpCommunicator::Lost(int r, const ExchangeLabel& label) {
  if (r == rank_) {
    return Fail(absl::UnavailableError(Cat("the others have lost the connection to this rank, ", r)),
                {.kind = NoticeKind::kLost, .rank = r}, "");
  }
  return Fail(BlameRank(absl::UnavailableError(Cat("rank ", r, " closed its connection in ", PlaceName(label))), r),
              {.kind = NoticeKind::kLost, .rank = r}, "");
}

// The time of the operation is up, here or at a peer that asks for reports.
Status TcpCommunicator::OnTimeout(const ExchangeLabel& label) {
  // A rank that finds all others gone was late itself, and has nobody to miss.
  int missing = -1;
  ForEachPeer([&](int r) {
    const Peer& peer = peers_[r];
    if (missing < 0 && peer.silent && (peer.receiving || peer.sending)) missing = r;
  });
  Notice mine{.kind = NoticeKind::kReport};
  std::string text;
  if (missing >= 0) {
    text = Cat("rank ", missing, " did not reach ", PlaceName(label), " within ", timeout_.load().count(), " ms");
    reports_[rank_] = {operation_, missing, text};
    mine.operation = operation_;
    mine.rank = missing;
  }
  // The sending ends with the report; the reading goes on.
  Status failure = Fail(absl::DeadlineExceededError(text), mine, text);
  if (!absl::IsDeadlineExceeded(failure)) return failure;
  const Clock::time_point end = Clock::now() + kReportTimeout;
  for (;;) {
    bool all = true;
    ForEachPeer([&](int r) { all &= !peers_[r].silent; });
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    if (all || left <= 0) break;
    ReadNotices(static_cast<int>(left));
  }
  ForEachPeer([&](int r) {
    if (peers_[r].notice_bytes == sizeof(Notice) && peers_[r].notice.kind == NoticeKind::kReport) TakeReport(r);
  });
  failure = DecideBlame(reports_);
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  return failure;
}

std::string TcpCommunicator::TextOf(const Notice& notice) {
  return {notice.text, std::min<size_t>(notice.length, sizeof(notice.text))};
}

void TcpCommunicator::TakeReport(int r) {
  const Notice& notice = peers_[r].notice;
  const int missing = notice.rank < size_ ? notice.rank : -1;
  reports_[r] = {notice.operation, missing, TextOf(notice)};
}

Status TcpCommunicator::FailOutOfStep(const std::string& what) {
  return Fail(absl::InternalError(what), {.kind = NoticeKind::kFailure}, what);
}

Status TcpCommunicator::Failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status TcpCommunicator::Fail(Status failure, Notice notice, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  failure_ = std::move(failure);
  notice.length = static_cast<uint32_t>(std::min(text.size(), sizeof(notice.text)));
  std::memcpy(notice.text, text.data(), notice.length);
  ForEachPeer([&](int r) {
    const Connections& to = peers_[r].connections;
    // A notice is the first and only thing on its connection, so it fits.
    (void)send(to.notices.get(), &notice, sizeof(notice), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(to.notices.get(), SHUT_WR);
    (void)shutdown(to.parts.get(), SHUT_WR);
  });
  failed_.store(true, std::memory_order_release);
  (void)eventfd_write(wake_.get(), 1);
  return failure_;
}

}  // namespace moe
