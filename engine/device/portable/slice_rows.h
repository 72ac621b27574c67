// The rows of a step's slices one after another, as the tasks of an operation.
#ifndef MOE_ENGINE_DEVICE_PORTABLE_SLICE_ROWS_H_
#define MOE_ENGINE_DEVICE_PORTABLE_SLICE_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/ops.h"

namespace moe {

struct SliceRow {
  const MixerSlice* slice = nullptr;
  int64_t row = 0;
  int64_t position = 0;
  // Of `at` = this row's position or an earlier one.
  int64_t block(int64_t at) const { return slice->blocks[static_cast<size_t>(at / kKvBlockTokens)]; }
};

inline std::vector<SliceRow> RowsOf(std::span<const MixerSlice> slices) {
  size_t count = 0;
  for (const MixerSlice& slice : slices) count += static_cast<size_t>(slice.count);
  std::vector<SliceRow> rows;
  rows.reserve(count);
  for (const MixerSlice& slice : slices) {
    for (int64_t i = 0; i < slice.count; ++i) rows.push_back({&slice, slice.row0 + i, slice.first_pos + i});
  }
  return rows;
}

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_PORTABLE_SLICE_ROWS_H_
