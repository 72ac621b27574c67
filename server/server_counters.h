// ServerCounters: what the gRPC side counts itself; the engine's own numbers are in EngineStats. Only ever grow.
#ifndef MOE_SERVER_SERVER_COUNTERS_H_
#define MOE_SERVER_SERVER_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moe {

enum class Method {
  kGenerate,
  kGenerateStream,
  kTokenize,
  kDetokenize,
  kGetModel,
  kGetExpertPlacement,
  kRebalanceExperts,
  kDrain,
  kAbort,
  kGetLoad,
  kFlushPrefixCache,
};
inline constexpr std::array<const char*, 11> kMethodNames = {
    "Generate",         "GenerateStream", "Tokenize", "Detokenize", "GetModel",        "GetExpertPlacement",
    "RebalanceExperts", "Drain",          "Abort",    "GetLoad",    "FlushPrefixCache"};

inline constexpr int kNumStatusCodes = 17;
extern const std::array<const char*, kNumStatusCodes> kStatusCodeNames;  // "OK", "CANCELLED", …

// Why a generation was turned away before it began.
enum class RejectReason { kQueueFull, kLoading, kDraining, kInvalid };
inline constexpr std::array<const char*, 4> kRejectReasonNames = {"queue_full", "loading", "draining", "invalid"};

// Why a generation ended before its time.
enum class CancelCause { kClient, kDeadline, kAbort, kSlowReader };
inline constexpr std::array<const char*, 4> kCancelCauseNames = {"client", "deadline", "abort", "slow_reader"};

class ServerCounters {
 public:
  // `code`: the canonical number, the same in gRPC and Abseil. Called once a call.
  void Finished(Method method, int code) {
    if (code < 0 || code >= kNumStatusCodes) code = 2;  // UNKNOWN
    finished_[static_cast<size_t>(method)][static_cast<size_t>(code)].fetch_add(1, std::memory_order_relaxed);
  }
  void Rejected(RejectReason reason) { Add(rejected_[static_cast<size_t>(reason)]); }
  void Cancelled(CancelCause cause) { Add(cancelled_[static_cast<size_t>(cause)]); }

  uint64_t finished(size_t method, size_t code) const { return finished_[method][code].load(); }
  uint64_t rejected(RejectReason reason) const { return rejected_[static_cast<size_t>(reason)].load(); }
  uint64_t cancelled(CancelCause cause) const { return cancelled_[static_cast<size_t>(cause)].load(); }

 private:
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

  std::array<std::array<Counter, kNumStatusCodes>, kMethodNames.size()> finished_{};
  std::array<Counter, kRejectReasonNames.size()> rejected_{};
  std::array<Counter, kCancelCauseNames.size()> cancelled_{};
};

}  // namespace moe

#endif  // MOE_SERVER_SERVER_COUNTERS_H_
