// Short forms that the mixers share.
#ifndef MOE_ENGINE_MODEL_MIXERS_PROJECT_H_
#define MOE_ENGINE_MODEL_MIXERS_PROJECT_H_

#include <algorithm>
#include <span>

#include "engine/device/data_or_null.h"
#include "engine/model/packed_model.h"
#include "engine/moe/moe_runner.h"

namespace moe {

// w · a + bias for each of `rows` rows of `a` in act, in the arena: [rows, w.rows()].
inline float* Project(const ForwardContext& context, const std::byte* a, int64_t rows, const PackedMatrix& w,
                      const float* bias) {
  auto* out = context.arena->Allocate<float>(rows * w.rows());
  context.backend->Gemm({.a = {a, context.backend->act_dtype(), rows, w.cols(), w.cols()},
                         .w = &w,
                         .bias = bias,
                         .out = out,
                         .out_stride = w.rows()});
  return out;
}

// x [rows, H] += the output projection of `a`.
inline void ProjectOut(const ForwardContext& context, const std::byte* a, int64_t rows, const PackedLinear& w,
                       float* x) {
  context.backend->Gemm({.a = {a, context.backend->act_dtype(), rows, w.matrix->cols(), w.matrix->cols()},
                         .w = w.matrix.get(),
                         .bias = w.bias_or_null(),
                         .out = x,
                         .out_stride = w.matrix->rows(),
                         .accumulate = true});
}

// Rows of `dim` values in act, in the arena.
inline std::byte* AllocateAct(const ForwardContext& context, int64_t rows, int64_t dim) {
  return context.arena->AllocateBytes(static_cast<size_t>(rows * dim) * DTypeSize(context.backend->act_dtype()));
}

// The first `dim` values of rows `stride` apart, rounded to act.
inline const std::byte* RoundRows(const ForwardContext& context, const float* x, int64_t rows, int64_t dim,
                                  int64_t stride) {
  std::byte* out = AllocateAct(context, rows, dim);
  context.backend->Round({.x = x, .rows = rows, .dim = dim, .stride = stride, .out_act = out});
  return out;
}

// The slices' positions below and from `border` on, in the arena.
struct SplitSlices {
  std::span<const MixerSlice> below;
  std::span<const MixerSlice> from;
};
inline SplitSlices SplitAt(Arena* arena, std::span<const MixerSlice> slices, int64_t border) {
  const std::span<MixerSlice> below_border = arena->AllocateObjects<MixerSlice>(slices.size());
  const std::span<MixerSlice> from_border = arena->AllocateObjects<MixerSlice>(slices.size());
  size_t num_below = 0, num_from = 0;
  for (const MixerSlice& slice : slices) {
    const int64_t below = std::clamp<int64_t>(border - slice.first_pos, 0, slice.count);
    MixerSlice part = slice;
    part.count = below;
    if (part.count > 0) below_border[num_below++] = part;
    part.row0 += below;
    part.first_pos += below;
    part.count = slice.count - below;
    if (part.count > 0) from_border[num_from++] = part;
  }
  return {below_border.first(num_below), from_border.first(num_from)};
}

// The slices with the rows before each as their states, which operations that look back read, in the arena; op.out need
// not be set.
inline std::span<const MixerSlice> WithWindows(const ForwardContext& context, WindowOp op) {
  const std::span<MixerSlice> slices = context.arena->AllocateObjects<MixerSlice>(op.slices.size());
  std::copy(op.slices.begin(), op.slices.end(), slices.begin());
  const int64_t size = op.channels * op.window;
  op.out = context.arena->Allocate<float>(static_cast<int64_t>(slices.size()) * size);
  for (size_t i = 0; i < slices.size(); ++i) slices[i].state = op.out + static_cast<int64_t>(i) * size;
  if (op.window > 0) context.backend->Window(op);
  return slices;
}

}  // namespace moe

#endif  // MOE_ENGINE_MODEL_MIXERS_PROJECT_H_
