#include <algorithm>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/portable/slice_rows.h"

namespace moe {
namespace {

// The place of a position's row in its block's ring.
float* RingRow(const WindowOp& op, const MixerSlice& slice, int64_t position) {
  const int64_t block = slice.blocks[static_cast<size_t>(position / kKvBlockTokens)];
  const int64_t place = position % kKvBlockTokens % op.window;
  return op.kv.tail + block * op.kv.tail_size + op.tail_offset + place * op.channels;
}

// Before the rows of the slice are stored: they may take the places of those.
void ReadWindow(const WindowOp& op, const MixerSlice& slice, float* out) {
  for (int64_t w = 0; w < op.window; ++w) {
    const int64_t position = slice.first_pos - op.window + w;
    const float* row = position < 0 ? op.before : RingRow(op, slice, position);
    for (int64_t c = 0; c < op.channels; ++c) out[c * op.window + w] = row == nullptr ? 0.0f : row[c];
  }
}

void StoreRows(const WindowOp& op, const MixerSlice& slice) {
  for (int64_t i = 0; i < slice.count; ++i) {
    const int64_t position = slice.first_pos + i;
    const bool replaced = i + op.window < slice.count && position % kKvBlockTokens + op.window < kKvBlockTokens;
    if (!replaced) std::copy_n(op.x + (slice.row0 + i) * op.stride, op.channels, RingRow(op, slice, position));
  }
}

}  // namespace

void PortableBackend::Window(const WindowOp& op) {
  const auto count = static_cast<int64_t>(op.slices.size());
  const double work = static_cast<double>(2 * count * op.channels * op.window);
  ForTasks(count, work, [&](int64_t i) {
    const MixerSlice& slice = op.slices[static_cast<size_t>(i)];
    ReadWindow(op, slice, op.out + i * op.channels * op.window);
    StoreRows(op, slice);
  });
}

void PortableBackend::Unfold(const UnfoldOp& op) {
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const int64_t past = op.taps - 1;
  const auto count = static_cast<int64_t>(rows.size());
  ForTasks(count, static_cast<double>(count * op.channels * op.taps), [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    const int64_t first = at.slice->row0;
    float* out = op.out + at.row * op.channels * op.taps;
    for (int64_t t = 0; t < op.taps; ++t) {
      const int64_t row = at.row - past + t;
      const bool inside = row >= first;
      const float* in = inside ? op.x + row * op.stride : at.slice->state + (row - first + past);
      const int64_t step = inside ? 1 : past;
      for (int64_t c = 0; c < op.channels; ++c) out[c * op.taps + t] = in[c * step];
    }
  });
}

}  // namespace moe
