#include "engine/sample/top_select.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moe {
namespace {
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
}

void SelectTop(std::span<const float> values, int64_t count, std::vector<Candidate>& out) {
  out.clear();
  const int64_t n = static_cast<int64_t>(values.size());
  count = std::min(count, n);
  if (count <= 0) return;
  // Above a quarter of the row the buffer would hold all of it anyway.
  const size_t capacity = count > n / 4 ? n : std::max<int64_t>(4 * count, 256);
  out.reserve(std::min<size_t>(capacity, n));
  // What does not exceed the count-th best so far cannot be among the best: equal values with lower ids are in already.
  float threshold = kMinusInf;
  bool full = false;
  for (int64_t i = 0; i < n; ++i) {
    const float v = values[i];
    if (full ? !(v > threshold) : false) continue;
    out.push_back({std::isnan(v) ? kMinusInf : v, static_cast<int32_t>(i)});
    if (out.size() == capacity && i + 1 < n) {
      std::nth_element(out.begin(), out.begin() + (count - 1), out.end(), Before);
      out.resize(count);
      threshold = out[count - 1].value;
      full = true;
    }
  }
  if (static_cast<int64_t>(out.size()) > count) {
    std::nth_element(out.begin(), out.begin() + (count - 1), out.end(), Before);
    out.resize(count);
  }
  std::sort(out.begin(), out.end(), Before);
}

uint32_t RankOf(std::span<const float> values, int32_t id) {
  const float x = std::isnan(values[id]) ? kMinusInf : values[id];
  const size_t at = static_cast<size_t>(id);
  uint32_t before = 0;
  for (size_t i = 0; i < at; ++i) before += values[i] >= x ? 1 : 0;
  for (size_t i = at; i < values.size(); ++i) before += values[i] > x ? 1 : 0;
  // NaN compares false above; as -inf it precedes only another -inf of a higher id.
  if (x == kMinusInf) {
    for (size_t i = 0; i < at; ++i) before += std::isnan(values[i]) ? 1 : 0;
  }
  return before + 1;
}

int32_t ArgMax(std::span<const float> values) {
  float best = kMinusInf;
  int32_t id = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > best) {
      best = values[i];
      id = static_cast<int32_t>(i);
    }
  }
  return id;
}

}  // namespace moe
