#include "parallel/gloo_communicator.h"

#include <gloo/common/error.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "parallel/base/check.h"
#include "parallel/sigpipe_guard.h"

namespace moe {
namespace {

using std::chrono::milliseconds;

// Slots: operations of the group count up from 0, small messages of a pair from kSmallSlots.
constexpr uint64_t kSmallSlots = uint64_t{1} << 62;
constexpr uint64_t kWatchSlot = ~uint64_t{0};
constexpr uint32_t kLeavingNotice = 1;
constexpr uint32_t kFailureNotice = 2;
constexpr uint32_t kLostNotice = 3;
constexpr uint32_t kReportNotice = 4;
constexpr const char* kClosed = "closed its connection";
constexpr milliseconds kForever = std::chrono::hours(24 * 365);
constexpr milliseconds kNoticeTimeout(50);
constexpr milliseconds kReportTimeout(100);
constexpr milliseconds kLossTimeout(20);

struct Hello {
  uint64_t magic = 0x316f6f6c672d6f6d;
  uint64_t generation = 0;
  int32_t from = 0;
  int32_t to = 0;
  Nonce nonce = {};  // the one that `to` published
};

// Gloo's buffers are fixed to one piece of memory, ours change with every call. The TCP transport registers nothing, so
// one buffer over the whole address space serves all; offsets are addresses.
std::unique_ptr<gloo::transport::UnboundBuffer> AnyMemory(gloo::transport::Context& context) {
  return context.createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
}

size_t Address(const void* p) {
  return reinterpret_cast<size_t>(p);
}

}  // namespace

GlooCommunicator::GlooCommunicator(std::shared_ptr<gloo::transport::Device> device,
                                   std::shared_ptr<gloo::transport::Context> context, int rank, int size,
                                   milliseconds timeout)
    : rank_(rank),
      size_(size),
      timeout_(timeout),
      device_(std::move(device)),
      context_(std::move(context)),
      inboxes_(size),
      receive_(size),
      send_(size),
      watch_(size),
      notify_(size),
      notices_(size),
      notified_(size),
      parts_out_(size),
      parts_in_(size),
      barrier_bytes_(size + 1),
      disconnected_(size),
      reports_(size) {}

GlooCommunicator::~GlooCommunicator() {
  const SigpipeGuard guard;
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
  for (Buffer& watch : watch_) {
    if (watch) watch->abortWaitRecv();
  }
  for (std::thread& watcher : watchers_) watcher.join();
  // No pair touches a buffer after this. The buffers hold the context, the context the device and its thread.
  if (close_) CloseAll();
  inboxes_.clear();
  receive_.clear();
  send_.clear();
  watch_.clear();
  notify_.clear();
  close_.reset();
  context_.reset();
  device_.reset();
}

void GlooCommunicator::Start() {
  close_ = AnyMemory(*context_);
  ForEachPeer([&](int r) {
    at_ = r;
    receive_[r] = AnyMemory(*context_);
    send_[r] = AnyMemory(*context_);
    notify_[r] = AnyMemory(*context_);
    watch_[r] = AnyMemory(*context_);
    watch_[r]->recv(r, kWatchSlot, Address(&notices_[r]), sizeof(Notice));
    inboxes_[r].bytes.resize(kAhead * kSmall);
    for (uint64_t i = 0; i < kAhead; ++i) {
      inboxes_[r].buffers[i] = AnyMemory(*context_);
      PostSmallReceive(r, i);
    }
  });
  silent_ = size_ - 1;
  keeper_ = std::thread([this] { Keep(); });
  ForEachPeer([&](int r) { watchers_.emplace_back([this, r] { Watch(r); }); });
}

Status GlooCommunicator::Greet(uint64_t generation, const std::vector<Nonce>& nonces, milliseconds timeout) {
  if (size_ == 1) return absl::OkStatus();
  const SigpipeGuard guard;  // the threads inherit it
  try {
    Start();
  } catch (const std::exception& e) {
    return absl::UnavailableError(Cat("rank ", at_.load(), " closed its connection in phase rendezvous"));
  }
  std::vector<Hello> out(size_);
  std::vector<Hello> in(size_);
  for (int r = 0; r < size_; ++r) {
    out[r].generation = generation;
    out[r].from = rank_;
    out[r].to = r;
    out[r].nonce = nonces[r];
    parts_out_[r] = std::as_bytes(std::span(&out[r], 1));
    parts_in_[r] = std::as_writable_bytes(std::span(&in[r], 1));
  }
  MOE_RETURN_IF_ERROR(Exchange({"rendezvous"}, timeout));
  for (int r = 0; r < size_; ++r) {
    const Hello& hello = in[r];
    if (hello.magic != Hello().magic || hello.generation != generation || hello.from != r || hello.to != rank_ ||
        hello.nonce != nonces[rank_]) {
      Status stranger = absl::UnavailableError(Cat("a stranger took the connection of rank ", r, " to rank ", rank_,
                                                   " while generation ", generation, " formed"));
      Fail(stranger);
      return stranger;
    }
  }
  return absl::OkStatus();
}

Status GlooCommunicator::AllToAllV(std::span<const std::span<const std::byte>> send,
                                   std::span<const std::span<std::byte>> recv, const ExchangeLabel& label) {
  MOE_CHECK(static_cast<int>(send.size()) == size_ && static_cast<int>(recv.size()) == size_);
  MOE_CHECK_EQ(send[rank_].size(), recv[rank_].size());
  std::copy(send.begin(), send.end(), parts_out_.begin());
  std::copy(recv.begin(), recv.end(), parts_in_.begin());
  return Exchange(label, timeout_);
}

Status GlooCommunicator::AllGather(std::span<const int32_t> mine, std::span<int32_t> all, const ExchangeLabel& label) {
  MOE_CHECK_EQ(all.size(), mine.size() * static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    parts_out_[r] = std::as_bytes(mine);
    parts_in_[r] = std::as_writable_bytes(all.subspan(r * mine.size(), mine.size()));
  }
  return Exchange(label, timeout_);
}

Status GlooCommunicator::Broadcast(std::span<std::byte> bytes, int root, const ExchangeLabel& label) {
  MOE_CHECK(root >= 0 && root < size_);
  for (int r = 0; r < size_; ++r) {
    parts_out_[r] = {};
    parts_in_[r] = {};
    if (rank_ == root && r != rank_) parts_out_[r] = bytes;
  }
  if (rank_ != root) parts_in_[root] = bytes;
  return Exchange(label, timeout_);
}

Status GlooCommunicator::Barrier(const ExchangeLabel& label) {
  for (int r = 0; r < size_; ++r) {
    parts_out_[r] = std::span(barrier_bytes_).subspan(size_, 1);
    parts_in_[r] = std::span(barrier_bytes_).subspan(r, 1);
  }
  return Exchange(label, timeout_);
}

void GlooCommunicator::Abort(const std::string& reason) {
  Fail(absl::UnavailableError(reason));
}

Status GlooCommunicator::Exchange(const ExchangeLabel& label, milliseconds timeout) {
  const SigpipeGuard guard;
  MOE_RETURN_IF_ERROR(Begin(label, timeout));
  bool done = false;
  std::string broken;
  try {
    Post();
    if (!parts_in_[rank_].empty()) {
      std::memmove(parts_in_[rank_].data(), parts_out_[rank_].data(), parts_in_[rank_].size());
    }
    done = Await();
  } catch (const gloo::IoException&) {
    broken = kClosed;
  } catch (const std::exception& e) {
    broken = Cat("cannot be reached: ", e.what());
  }
  return done ? Finish() : Broken(broken);
}

void GlooCommunicator::Post() {
  ForEachPeer([&](int r) {
    if (parts_in_[r].size() <= kSmall) return;
    at_ = r;
    receive_[r]->recv(r, next_slot_, Address(parts_in_[r].data()), parts_in_[r].size());
  });
  ForEachPeer([&](int r) {
    if (parts_out_[r].empty()) return;
    at_ = r;
    const bool small = parts_out_[r].size() <= kSmall;
    const uint64_t slot = small ? kSmallSlots + inboxes_[r].next_out++ : next_slot_;
    send_[r]->send(r, slot, Address(parts_out_[r].data()), parts_out_[r].size());
  });
}

void GlooCommunicator::PostSmallReceive(int peer, uint64_t number) {
  Inbox& inbox = inboxes_[peer];
  const uint64_t i = number % kAhead;
  inbox.buffers[i]->recv(peer, kSmallSlots + number, Address(inbox.bytes.data() + i * kSmall), kSmall);
}

bool GlooCommunicator::WaitReceive(int peer) {
  const std::span<std::byte> part = parts_in_[peer];
  if (part.empty()) return true;
  if (part.size() > kSmall) return receive_[peer]->waitRecv(nullptr, kForever);
  Inbox& inbox = inboxes_[peer];
  const uint64_t i = inbox.next_in % kAhead;
  if (!inbox.buffers[i]->waitRecv(nullptr, kForever)) return false;
  std::memcpy(part.data(), inbox.bytes.data() + i * kSmall, part.size());
  const uint64_t ahead = inbox.next_in++ + kAhead;
  try {
    PostSmallReceive(peer, ahead);
  } catch (const std::exception&) {
    // The peer left after this message. What is already posted fails when it is waited for.
  }
  return true;
}

bool GlooCommunicator::Await() {
  bool good = true;
  // A wait returns false when CloseAll has ended it.
  ForEachPeer([&](int r) {
    at_ = r;
    good = good && WaitReceive(r);
  });
  ForEachPeer([&](int r) {
    at_ = r;
    good = good && (parts_out_[r].empty() || send_[r]->waitSend(nullptr, kForever));
  });
  return good;
}

Status GlooCommunicator::Begin(const ExchangeLabel& label, milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !judging_ || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  in_call_ = true;
  label_ = label;
  call_timeout_ = timeout;
  deadline_ = Clock::now() + timeout;
  if (deadline_ < wake_at_) changed_.notify_all();
  return absl::OkStatus();
}

Status GlooCommunicator::Finish() {
  std::lock_guard lock(mutex_);
  ++next_slot_;
  in_call_ = false;
  return absl::OkStatus();
}

Status GlooCommunicator::Broken(const std::string& what) {
  std::unique_lock lock(mutex_);
  // The peer may have said why before it closed: its watcher knows.
  changed_.wait_for(lock, kNoticeTimeout, [&] { return !failure_.ok(); });
  if (failure_.ok() && !judging_) Lose(at_, what);
  changed_.wait(lock, [&] { return closed_; });
  in_call_ = false;
  return failure_;
}

void GlooCommunicator::Watch(int peer) {
  bool told = false;
  try {
    told = watch_[peer]->waitRecv(nullptr, kForever);  // false: we are done ourselves
  } catch (const std::exception&) {
    std::lock_guard lock(mutex_);
    disconnected_[peer] = true;
    if (failure_.ok() && !judging_) Lose(peer, kClosed);
  }
  if (told) TakeNotice(peer, notices_[peer]);
  std::lock_guard lock(mutex_);
  --silent_;
  changed_.notify_all();
}

void GlooCommunicator::TakeNotice(int peer, const Notice& notice) {
  std::lock_guard lock(mutex_);
  if (notice.kind == kLostNotice && lost_ >= 0 && !told_) {  // we had seen a loss ourselves, maybe of the messenger
    lost_ = notice.rank;
    told_ = true;
    changed_.notify_all();
  }
  if (!failure_.ok() || notice.kind == kLeavingNotice) return;
  const std::string text(notice.text, std::min<size_t>(notice.length, sizeof(notice.text)));
  if (notice.kind == kReportNotice) {
    reports_[peer] = {notice.operation, notice.rank, text};
    Judge();
  } else if (judging_) {  // that is why it does not report
  } else if (notice.kind == kLostNotice) {
    told_ = true;
    Lose(notice.rank, kClosed);  // every rank names the place where it noticed
  } else {
    failure_ = absl::UnavailableError(text.empty() ? Cat("rank ", peer, " gave up") : text);
    changed_.notify_all();
  }
}

void GlooCommunicator::Judge() {
  if (judging_) return;
  judging_ = true;
  if (in_call_ && at_ >= 0) {
    reports_[rank_] = {
        next_slot_, at_,
        Cat("rank ", at_.load(), " did not reach ", PlaceName(label_), " within ", call_timeout_.count(), " ms")};
  }
  changed_.notify_all();
}

// When a rank dies, the others close too: which of two lost connections was first is not always seen. So a moment for
// word from others; without any, all that are lost are named.
void GlooCommunicator::SettleLoss(std::unique_lock<std::mutex>& lock) {
  if (!told_) changed_.wait_for(lock, kLossTimeout, [&] { return told_ || silent_ == 0; });
  std::string ranks = Cat(lost_);
  for (int r = 0; r < size_ && !told_; ++r) {
    if (disconnected_[r] && r != lost_) ranks += Cat(", ", r);
  }
  failure_ = BlameRank(absl::UnavailableError(Cat("rank ", ranks, loss_)), lost_);
}

void GlooCommunicator::Keep() {
  std::unique_lock lock(mutex_);
  while (failure_.ok() && !leaving_ && !judging_) {
    // A call that begins while we sleep ends later than we wake, unless its timeout is shorter; then it wakes us.
    wake_at_ = in_call_ ? deadline_ : Clock::now() + timeout_.load();
    changed_.wait_until(lock, wake_at_,
                        [&] { return !failure_.ok() || leaving_ || judging_ || (in_call_ && deadline_ < wake_at_); });
    if (failure_.ok() && !leaving_ && in_call_ && Clock::now() >= deadline_) Judge();
  }
  if (lost_ >= 0) SettleLoss(lock);
  std::string text(failure_.message());
  if (judging_) {
    notice_.kind = kReportNotice;
    notice_.operation = reports_[rank_].operation;
    notice_.rank = reports_[rank_].missing;
    text = reports_[rank_].text;
  } else {
    notice_.kind = failure_.ok() ? kLeavingNotice : lost_ >= 0 ? kLostNotice : kFailureNotice;
    notice_.rank = lost_;
  }
  notice_.length = static_cast<uint32_t>(std::min(text.size(), sizeof(notice_.text)));
  std::memcpy(notice_.text, text.data(), notice_.length);
  lock.unlock();
  PostNotice();
  if (notice_.kind == kReportNotice) {
    lock.lock();
    changed_.wait_for(lock, kReportTimeout, [&] { return silent_ == 0; });
    failure_ = DecideBlame(reports_);
    lock.unlock();
  }
  AwaitNotice();
  if (notice_.kind != kLeavingNotice) CloseAll();
  lock.lock();
  closed_ = true;
  changed_.notify_all();
}

void GlooCommunicator::PostNotice() {
  ForEachPeer([&](int r) {
    try {
      notify_[r]->send(r, kWatchSlot, Address(&notice_), offsetof(Notice, text) + notice_.length);
      notified_[r] = true;
    } catch (const std::exception&) {  // closed already: nobody is there to be told
    }
  });
}

void GlooCommunicator::AwaitNotice() {
  ForEachPeer([&](int r) {
    if (!notified_[r]) return;
    try {
      notify_[r]->waitSend(nullptr, kNoticeTimeout);  // the first that times out closes all pairs: 50 ms altogether
    } catch (const std::exception&) {
    }
  });
}

void GlooCommunicator::CloseAll() {
  try {
    close_->waitRecv(nullptr, milliseconds(0));  // a wait that times out closes every pair, in order
  } catch (const std::exception&) {
  }
  ForEachPeer([&](int r) {
    receive_[r]->abortWaitRecv();
    for (Buffer& buffer : inboxes_[r].buffers) buffer->abortWaitRecv();
    send_[r]->abortWaitSend();
    watch_[r]->abortWaitRecv();
  });
}

void GlooCommunicator::Fail(const Status& failure) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok() || judging_) return;
  failure_ = failure;
  changed_.notify_all();
}

void GlooCommunicator::Lose(int peer, const std::string& how) {
  lost_ = peer;
  loss_ = Cat(" ", how, in_call_ ? Cat(" in ", PlaceName(label_)) : "");
  failure_ = BlameRank(absl::UnavailableError(Cat("rank ", peer, loss_)), peer);
  changed_.notify_all();
}

}  // namespace moe
