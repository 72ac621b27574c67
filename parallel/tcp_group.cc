#include "parallel/tcp_group.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <vector>

#include "parallel/tcp_communicator.h"

namespace moe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Connections = TcpCommunicator::Connections;

// Connections of strangers, or of peers that have not said who they are, that are kept at the same time.
constexpr int64_t kMostUnknown = 256;
constexpr milliseconds kGreetingTime(100);  // from connecting to the greeting, when there is no room for more
constexpr milliseconds kLastCall(100);      // for connections on their way when the group is given up
constexpr milliseconds kLook(20);           // after which a rank that waits looks whether the group is given up
constexpr int kChannels = 2;                // parts, notices

// What both sides of a connection say first. Its numbers in the order of this machine's bytes, like the rows that
// follow: the magic keeps apart machines that differ in it.
struct Greeting {
  uint64_t magic = 0x31706374'2d656f6d;
  uint64_t generation = 0;
  int32_t from = 0;
  int32_t to = 0;
  int32_t channel = 0;
  int32_t zero = 0;
  Nonce nonce = {};  // the one that `to` published
};

// What a rank publishes: its nonce, then its address.
std::string EncodeCard(const Nonce& nonce, const SocketAddress& address) {
  std::string bytes(nonce.begin(), nonce.end());
  bytes.append(reinterpret_cast<const char*>(&address.storage), address.length);
  return bytes;
}

struct Card {
  Nonce nonce = {};
  SocketAddress address;
};

StatusOr<Card> DecodeCard(const std::string& bytes, int writer) {
  Card card;
  const size_t length = bytes.size() - std::min(bytes.size(), card.nonce.size());
  if (length == sizeof(sockaddr_in) || length == sizeof(sockaddr_in6)) {
    std::copy_n(bytes.begin(), card.nonce.size(), card.nonce.begin());
    std::memcpy(&card.address.storage, bytes.data() + card.nonce.size(), length);
    card.address.length = static_cast<socklen_t>(length);
    const auto family = length == sizeof(sockaddr_in) ? AF_INET : AF_INET6;
    if (card.address.storage.ss_family == family) return card;
  }
  return absl::UnavailableError(Cat("rank ", writer, " published ", bytes.size(), " bytes that are no address"));
}

std::string Key(uint64_t generation, int rank) {
  return Cat("tcp/", generation, "/", rank);
}

Status ErrnoStatus(int error) {
  return absl::UnavailableError(std::generic_category().message(error));
}

StatusOr<FileDescriptor> OpenSocket(int family) {
  FileDescriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno);
  return fd;
}

void SendAtOnce(int fd) {
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Forms the group: connects to the ranks below, and is connected to by those above.
class Meeting {
 public:
  Meeting(const GroupOptions& options, RendezvousStore& store)
      : options_(options),
        store_(store),
        deadline_(Clock::now() + options.rendezvous_timeout),
        cards_(options.size),
        met_(options.size) {}

  Status Run() {
    MOE_RETURN_IF_ERROR(Annotate(Listen(), ListeningPlace(options_)));
    MOE_RETURN_IF_ERROR(ReadCards());
    for (int r = 0; r < options_.rank; ++r) {
      for (int channel = 0; channel < kChannels; ++channel) MOE_RETURN_IF_ERROR(Call(r, channel));
    }
    std::optional<Clock::time_point> given_up;
    while (FirstMissing() >= 0) {
      // Where another rank has given up, this one says whom it misses itself: one that complains may be the one that
      // nobody reaches. So those that are on their way may still come.
      if (const Status failure = store_.Failure(); !failure.ok()) {
        if (!given_up) given_up = Clock::now() + kLastCall;
        if (Clock::now() >= *given_up) return BlameRank(failure, FirstMissing());
      }
      MOE_RETURN_IF_ERROR(Step());
    }
    return absl::OkStatus();
  }

  std::vector<Connections> Take() { return std::move(met_); }

 private:
  // A connection on its way: ours to a rank below, or one that somebody made to us.
  struct Pending {
    FileDescriptor fd;
    int rank = -1;  // whom we called; -1: it called us
    int channel = 0;
    bool connected = false;
    Greeting out;  // of a call: what we say
    size_t sent = 0;
    Greeting in;
    size_t received = 0;
    Clock::time_point since = Clock::now();
    bool done = false;
  };

  Status Listen() {
    MOE_ASSIGN_OR_RETURN(here_, LocalAddress(options_));
    MOE_ASSIGN_OR_RETURN(listener_, OpenSocket(here_.storage.ss_family));
    SocketAddress bound;
    bound.length = sizeof(bound.storage);
    if (bind(listener_.get(), here_.get(), here_.length) != 0 || listen(listener_.get(), 1024) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
      return ErrnoStatus(errno);
    }
    cards_[options_.rank].address = bound;
    MOE_ASSIGN_OR_RETURN(cards_[options_.rank].nonce, RandomNonce());
    return absl::OkStatus();
  }

  Status ReadCards() {
    const Card& mine = cards_[options_.rank];
    MOE_RETURN_IF_ERROR(store_.Set(Key(options_.generation, options_.rank), EncodeCard(mine.nonce, mine.address)));
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
      const auto bytes = store_.Wait(Key(options_.generation, r), std::max(left, milliseconds(0)));
      if (!bytes.ok()) {
        return BlameRank(Annotate(bytes.status(), Cat("rank ", r, " did not come to generation ", options_.generation)),
                         r);
      }
      MOE_ASSIGN_OR_RETURN(cards_[r], DecodeCard(*bytes, r));
    }
    return absl::OkStatus();
  }

  Status Call(int rank, int channel) {
    Pending call;
    call.rank = rank;
    call.channel = channel;
    call.out = {.generation = options_.generation,
                .from = options_.rank,
                .to = rank,
                .channel = channel,
                .nonce = cards_[rank].nonce};
    SocketAddress there = cards_[rank].address;
    if (there.storage.ss_family != here_.storage.ss_family) {
      return Unreachable(rank, "its address is of another family than this rank's");
    }
    // A link-local address counts on the link of this side.
    if (there.storage.ss_family == AF_INET6) {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(there.storage);
      v6.sin6_scope_id = reinterpret_cast<const sockaddr_in6&>(here_.storage).sin6_scope_id;
    }
    auto fd = OpenSocket(there.storage.ss_family);
    if (!fd.ok()) return Unreachable(rank, fd.status().message());
    call.fd = *std::move(fd);
    // From the same address, so that the rows take the interface that was asked for.
    if (bind(call.fd.get(), here_.get(), here_.length) != 0) return Unreachable(rank, ErrnoStatus(errno).message());
    if (connect(call.fd.get(), there.get(), there.length) != 0 && errno != EINPROGRESS) {
      return Unreachable(rank, ErrnoStatus(errno).message());
    }
    pending_.push_back(std::move(call));
    return absl::OkStatus();
  }

  // Waits until something happens on a connection, and takes note of it.
  Status Step() {
    const bool full = MakeRoom();
    std::vector<pollfd> polled{{full ? -1 : listener_.get(), POLLIN, 0}};
    for (const Pending& p : pending_) {
      const bool writing = p.rank >= 0 && p.sent < sizeof(Greeting);
      polled.push_back({p.fd.get(), static_cast<int16_t>(writing ? POLLOUT : POLLIN), 0});
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) {
      const int r = FirstMissing();
      return BlameRank(
          absl::DeadlineExceededError(Cat("rank ", r, " did not connect to rank ", options_.rank, " for generation ",
                                          options_.generation, " within ", options_.rendezvous_timeout.count(), " ms")),
          r);
    }
    if (poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left, kLook.count()))) < 0) {
      return errno == EINTR ? absl::OkStatus() : ErrnoStatus(errno);
    }
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      MOE_RETURN_IF_ERROR(pending_[i].rank >= 0 ? GoOn(pending_[i]) : Answer(pending_[i]));
    }
    std::erase_if(pending_, [](const Pending& p) { return p.done; });
    if (polled[0].revents != 0) Accept();
    return absl::OkStatus();
  }

  bool Full() const {
    const auto unknown = std::count_if(pending_.begin(), pending_.end(), [](const Pending& p) { return p.rank < 0; });
    return unknown >= kMostUnknown + kChannels * options_.size;
  }

  // A peer greets as soon as it has connected: who has been silent for a while makes room for others, which wait in the
  // listener's queue as long as there is none. Returns whether there is none.
  bool MakeRoom() {
    if (!Full()) return false;
    const Clock::time_point before = Clock::now() - kGreetingTime;
    std::erase_if(pending_, [&](const Pending& p) { return p.rank < 0 && p.since < before; });
    return Full();
  }

  void Accept() {
    while (!Full()) {
      FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) return;
      Pending caller;
      caller.fd = std::move(fd);
      pending_.push_back(std::move(caller));
    }
  }

  // Of a call of ours: says the greeting, then awaits the answer.
  Status GoOn(Pending& call) {
    if (call.sent < sizeof(Greeting)) {
      int error = 0;
      socklen_t length = sizeof(error);
      if (getsockopt(call.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
      if (error != 0) return Unreachable(call.rank, ErrnoStatus(error).message());
      const ssize_t n = send(call.fd.get(), reinterpret_cast<const char*>(&call.out) + call.sent,
                             sizeof(Greeting) - call.sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return Unreachable(call.rank, ErrnoStatus(errno).message());
      call.sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
      return absl::OkStatus();
    }
    if (!Read(call)) return Unreachable(call.rank, "it closed the connection");
    if (call.received < sizeof(Greeting)) return absl::OkStatus();
    if (!Fits(call.in, call.rank) || call.in.channel != call.channel) {
      return absl::UnavailableError(
          Cat("a stranger answered for rank ", call.rank, " while generation ", options_.generation, " formed"));
    }
    Keep(call, call.rank, call.channel);
    return absl::OkStatus();
  }

  // Of a connection that somebody made: hears the greeting, and answers if it is a peer's.
  Status Answer(Pending& caller) {
    if (!Read(caller)) {
      caller.done = true;
      return absl::OkStatus();
    }
    if (caller.received >= sizeof(uint64_t) && caller.in.magic != Greeting().magic) caller.done = true;
    if (caller.done || caller.received < sizeof(Greeting)) return absl::OkStatus();
    const Greeting& in = caller.in;
    caller.done = true;
    if (in.from <= options_.rank || in.from >= options_.size || in.channel < 0 || in.channel >= kChannels ||
        !Fits(in, in.from) || Slot(in.from, in.channel).valid()) {
      return absl::OkStatus();
    }
    const Greeting out{.generation = options_.generation,
                       .from = options_.rank,
                       .to = in.from,
                       .channel = in.channel,
                       .nonce = cards_[in.from].nonce};
    // The first bytes of a connection: they fit.
    if (send(caller.fd.get(), &out, sizeof(out), MSG_NOSIGNAL) != sizeof(out)) {
      return Unreachable(in.from, "it closed the connection");
    }
    Keep(caller, in.from, in.channel);
    return absl::OkStatus();
  }

  // False: the connection has ended.
  static bool Read(Pending& p) {
    const ssize_t n = recv(p.fd.get(), reinterpret_cast<char*>(&p.in) + p.received, sizeof(Greeting) - p.received, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    p.received += static_cast<size_t>(n);
    return n > 0;
  }

  bool Fits(const Greeting& in, int from) const {
    return in.magic == Greeting().magic && in.generation == options_.generation && in.from == from &&
           in.to == options_.rank && in.zero == 0 && in.nonce == cards_[options_.rank].nonce;
  }

  void Keep(Pending& p, int rank, int channel) {
    SendAtOnce(p.fd.get());
    Slot(rank, channel) = std::move(p.fd);
    p.done = true;
  }

  FileDescriptor& Slot(int rank, int channel) { return channel == 0 ? met_[rank].parts : met_[rank].notices; }

  int FirstMissing() const {
    for (int r = 0; r < options_.size; ++r) {
      if (r != options_.rank && !(met_[r].parts.valid() && met_[r].notices.valid())) return r;
    }
    return -1;
  }

  Status Unreachable(int rank, absl::string_view why) const {
    return BlameRank(absl::UnavailableError(
                         Cat("rank ", rank, " cannot be reached for generation ", options_.generation, ": ", why)),
                     rank);
  }

  const GroupOptions& options_;
  RendezvousStore& store_;
  const Clock::time_point deadline_;
  SocketAddress here_;  // port 0
  FileDescriptor listener_;
  std::vector<Card> cards_;
  std::vector<Pending> pending_;
  std::vector<Connections> met_;
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> CreateTcpCommunicator(const GroupOptions& options, RendezvousStore& store) {
  MOE_RETURN_IF_ERROR(CheckGroupOptions(options));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno);
  std::vector<Connections> connections(1);
  if (options.size > 1) {
    Meeting meeting(options, store);
    MOE_RETURN_IF_ERROR(meeting.Run());
    connections = meeting.Take();
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<TcpCommunicator>(std::move(connections), std::move(wake), options.rank, options.timeout));
}

}  // namespace moe
