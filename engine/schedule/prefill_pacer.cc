#include "engine/schedule/prefill_pacer.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace moe {
namespace {

constexpr double kSmoothing = 0.2;  // of a new step in the mean
// One slow step (another process, a page fault) says little: it counts as at most this many times the mean.
constexpr double kOutlier = 2;
// Of the room that slowdown leaves, what a step aims at: half of the steps lie above their aim.
constexpr double kAim = 0.8;
// Bounds of one correction of the chunk.
constexpr double kShrink = 0.5;
constexpr double kGrow = 1.25;

}  // namespace

size_t PrefillPacer::Index(int64_t decoding) {
  const auto log = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(decoding, 1))) - 1);
  return std::min(log, std::tuple_size_v<decltype(loads_)> - 1);
}

int64_t PrefillPacer::Allowance(int64_t decoding, int64_t pending) const {
  if (slowdown_ <= 0 || decoding == 0 || 2 * pending >= decoding) return largest_;
  const auto chunk = static_cast<int64_t>(loads_[Index(decoding)].chunk);
  return std::clamp(chunk, std::min(kSmallest, largest_), largest_);
}

void PrefillPacer::Observe(int64_t decoding, int64_t prefill, double seconds) {
  if (decoding == 0 || seconds <= 0) return;
  Load& load = loads_[Index(decoding)];
  if (prefill == 0) {
    if (load.alone == 0) load.alone = seconds;
    load.alone += kSmoothing * (std::min(seconds, kOutlier * load.alone) - load.alone);
    return;
  }
  if (slowdown_ <= 0 || load.alone == 0) return;
  // What is there for the prompt over what it took, so that a chunk of the right size stays.
  const double taken = std::max(seconds - load.alone, 0.01 * load.alone);
  const double correction = std::clamp(kAim * (slowdown_ - 1) * load.alone / taken, kShrink, kGrow);
  // A last, short chunk says that more would fit only if it was the allowed size.
  const double from = correction > 1 ? load.chunk : std::min(load.chunk, static_cast<double>(prefill));
  if (correction > 1 && static_cast<double>(prefill) < 0.9 * load.chunk) return;
  load.chunk =
      std::clamp(from * correction, static_cast<double>(kSmallest), static_cast<double>(std::max(largest_, kSmallest)));
}

}  // namespace moe
