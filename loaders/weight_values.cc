#include "loaders/weight_values.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace moe {
namespace {

// Bit patterns as signed integers: without their sign they order as the floats do, and the compiler has the vector
// instructions for it. Infinity is the first that is not finite.
template <typename Bits>
bool AllBelow(const std::byte* data, int64_t count, Bits infinity) {
  constexpr int64_t kAtOnce = 2048;  // short enough to stop early, long enough for the loop inside to count
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - begin);
    const std::byte* in = data + begin * static_cast<int64_t>(sizeof(Bits));
    Bits largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      Bits bits;
      std::memcpy(&bits, in + i * static_cast<int64_t>(sizeof(Bits)), sizeof(bits));
      largest = std::max(largest, static_cast<Bits>(bits & kMagnitude));
    }
    if (largest >= infinity) return false;
  }
  return true;
}

bool AllFinite(DType dtype, const std::byte* data, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return AllBelow<int32_t>(data, count, 0x7f800000);
    case DType::kBF16:
      return AllBelow<int16_t>(data, count, 0x7f80);
    case DType::kF16:
      return AllBelow<int16_t>(data, count, 0x7c00);
    default:
      return true;
  }
}

// The elements as lines of memory that a loop can run along: rows, or columns where those are the ones close together.
struct Lines {
  int64_t count = 0;
  int64_t length = 0;
  int64_t step = 1;  // between the elements of a line
  bool rows = true;
  int64_t Offset(const WeightSource& source, int64_t line) const {
    return rows ? source.RowOffset(line) : line * source.col_stride;
  }
};

Lines LinesOf(const WeightSource& source) {
  const bool turned = source.group_rows == 0 && (source.cols == 1 || source.row_stride < source.col_stride);
  if (turned) return {source.cols, source.rows, source.row_stride, false};
  return {source.rows, source.cols, source.col_stride, true};
}

NonFinite LookAt(DType dtype, const std::byte* data, int64_t length, int64_t step) {
  const auto element = static_cast<int64_t>(DTypeSize(dtype));
  // The span of the line has its neighbours' elements in it, a whole row of another tensor's at most: what they hold
  // only costs a closer look.
  constexpr int64_t kDense = 2;
  NonFinite found;
  if (step <= kDense && AllFinite(dtype, data, (length - 1) * step + 1)) return found;
  for (int64_t i = 0; i < length; ++i) {
    const float value = LoadFloat(dtype, data + i * step * element);
    if (std::isfinite(value)) continue;
    found.nan |= std::isnan(value);
    found.plus_infinity |= value > 0;
    found.minus_infinity |= value < 0;
  }
  return found;
}

// See the header. By the canonical name without its prefix.
bool MayBeMinusInfinity(const std::string& name) {
  for (const char* end : {"moe.router.select_bias", "moe.router.bias", "lm_head.bias", ".sinks"}) {
    if (name.ends_with(end)) return !name.ends_with("router.sinks");  // those are a matrix
  }
  return false;
}

}  // namespace

NonFinite FindNonFinite(const WeightSource& source, WorkerPool* pool) {
  constexpr int64_t kTaskElements = int64_t{1} << 16;
  if (source.dtype != DType::kF32 && source.dtype != DType::kBF16 && source.dtype != DType::kF16) return {};
  const Lines lines = LinesOf(source);
  if (lines.count <= 0 || lines.length <= 0) return {};
  const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
  const int64_t at_once = std::max<int64_t>(1, kTaskElements / lines.length);
  std::atomic<bool> nan = false, plus = false, minus = false;
  pool->ParallelFor((lines.count + at_once - 1) / at_once, [&](int64_t task) {
    const int64_t end = std::min(lines.count, (task + 1) * at_once);
    for (int64_t line = task * at_once; line < end; ++line) {
      const NonFinite found =
          LookAt(source.dtype, source.data + lines.Offset(source, line) * element, lines.length, lines.step);
      if (found == NonFinite{}) continue;
      if (found.nan) nan = true;
      if (found.plus_infinity) plus = true;
      if (found.minus_infinity) minus = true;
    }
  });
  return {nan, plus, minus};
}

Status CheckWeight(const WeightStore& store, const std::string& name, WorkerPool* pool) {
  NonFinite found = FindNonFinite(store.Get(name), pool);
  if (MayBeMinusInfinity(name)) found.minus_infinity = false;
  if (found == NonFinite{}) return absl::OkStatus();
  return InvalidError(store.FileName(name), ": tensor ", store.SourceName(name), " holds ",
                      found.nan ? "NaN" : "an infinite value", ", expected finite numbers");
}

}  // namespace moe
