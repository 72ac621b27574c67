// The in-process communicator: ranks are threads, a send is a memcpy by the receiver between two meetings of all ranks.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/communicator.h"
#include "parallel/cpu_pause.h"
#include "parallel/worker_pool.h"

namespace moe {
namespace {

// A rank that waits looks for this long before it sleeps: to sleep and be woken takes about as long.
constexpr std::chrono::microseconds kSpin(50);

// One rank's offer of an exchange, readable by the others between the two meetings.
struct Offer {
  std::span<const std::span<const std::byte>> parts;
  std::span<const std::byte> block;
};

class Group {
 public:
  Group(int size, std::chrono::milliseconds timeout)
      : offers(size), size_(size), timeout_(timeout), may_spin_(size <= UsableCores()), arrived_(size) {}

  int size() const { return size_; }

  // Waits until all ranks are here. Fails on all of them when one does not come in time.
  Status Meet(int rank, const ExchangeLabel& label) {
    std::unique_lock lock(mutex_);
    return Meet(rank, label, lock);
  }

  // The same before and after the ranks read each other's offers. Also one that fails lets the others finish reading:
  // the offer's memory is the caller's again when it returns.
  Status BeginReading(int rank, const ExchangeLabel& label) {
    std::unique_lock lock(mutex_);
    const uint64_t meeting = meeting_;
    MOE_RETURN_IF_ERROR(Meet(rank, label, lock));
    // The first to wake up begins it for all.
    if (std::exchange(reading_since_, meeting) != meeting) readers_ = size_;
    return absl::OkStatus();
  }
  Status EndReading(int rank, const ExchangeLabel& label) {
    std::unique_lock lock(mutex_);
    if (--readers_ == 0 && !failure_.ok()) changed_.notify_all();
    Status status = Meet(rank, label, lock);
    if (!status.ok()) changed_.wait(lock, [&] { return readers_ == 0; });
    return status;
  }

 private:
  Status Meet(int rank, const ExchangeLabel& label, std::unique_lock<std::mutex>& lock) {
    if (!failure_.ok()) return failure_;
    arrived_[rank] = true;
    const uint64_t meeting = meeting_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      std::fill(arrived_.begin(), arrived_.end(), false);
      meeting_.fetch_add(1, std::memory_order_release);
      changed_.notify_all();
      return absl::OkStatus();
    }
    if (may_spin_) {
      lock.unlock();
      const auto end = std::chrono::steady_clock::now() + kSpin;
      while (meeting_.load(std::memory_order_acquire) == meeting && std::chrono::steady_clock::now() < end) CpuPause();
      lock.lock();
    }
    const bool met = changed_.wait_for(lock, timeout_, [&] { return meeting_ != meeting || !failure_.ok(); });
    if (meeting_ != meeting) return absl::OkStatus();
    if (met) return failure_;
    std::string missing;
    for (int r = 0; r < size_; ++r) {
      if (!arrived_[r]) missing += Cat(missing.empty() ? "" : ", ", r);
    }
    failure_ = absl::DeadlineExceededError(Cat("rank ", missing, " did not reach phase ", label.phase, " of layer ",
                                               label.layer, " within ", timeout_.count(), " ms"));
    changed_.notify_all();
    return failure_;
  }

 public:
  void Fail(const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = absl::UnavailableError(reason);
    changed_.notify_all();
  }

  // Written by rank r before a meeting, read by the others between that meeting and the next one.
  std::vector<Offer> offers;

 private:
  const int size_;
  const std::chrono::milliseconds timeout_;
  const bool may_spin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> arrived_;  // all guarded by mutex_
  int waiting_ = 0;
  std::atomic<uint64_t> meeting_{0};
  uint64_t reading_since_ = ~uint64_t{0};  // the meeting that began it
  int readers_ = 0;                        // ranks that have not ended it
  Status failure_;
};

void Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  MOE_CHECK_EQ(to.size(), from.size());
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
}

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Status AllToAllV(std::span<const std::span<const std::byte>> send, std::span<const std::span<std::byte>> recv,
                   const ExchangeLabel& label) override {
    MOE_CHECK(static_cast<int>(send.size()) == size() && static_cast<int>(recv.size()) == size());
    group_->offers[rank_].parts = send;
    MOE_RETURN_IF_ERROR(group_->BeginReading(rank_, label));
    for (int r = 0; r < size(); ++r) Copy(recv[r], group_->offers[r].parts[rank_]);
    return group_->EndReading(rank_, label);  // nobody's send buffer may change before all have read
  }

  Status AllGather(std::span<const int32_t> mine, std::span<int32_t> all, const ExchangeLabel& label) override {
    MOE_CHECK_EQ(all.size(), mine.size() * static_cast<size_t>(size()));
    group_->offers[rank_].block = std::as_bytes(mine);
    MOE_RETURN_IF_ERROR(group_->BeginReading(rank_, label));
    for (int r = 0; r < size(); ++r) {
      Copy(std::as_writable_bytes(all.subspan(r * mine.size(), mine.size())), group_->offers[r].block);
    }
    return group_->EndReading(rank_, label);
  }

  Status Broadcast(std::span<std::byte> bytes, int root, const ExchangeLabel& label) override {
    group_->offers[rank_].block = bytes;
    MOE_RETURN_IF_ERROR(group_->BeginReading(rank_, label));
    if (rank_ != root) Copy(bytes, group_->offers[root].block);
    return group_->EndReading(rank_, label);
  }

  Status Barrier(const ExchangeLabel& label) override { return group_->Meet(rank_, label); }

  void Abort(const std::string& reason) override { group_->Fail(reason); }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> CreateInProcessGroup(int size, std::chrono::milliseconds timeout) {
  auto group = std::make_shared<Group>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(size);
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<InProcessCommunicator>(group, r));
  return ranks;
}

}  // namespace moe
