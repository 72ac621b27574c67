#include <algorithm>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/portable/slice_rows.h"
#include "engine/device/reference/reference_math.h"

namespace moe {

using reference::NormRow;
using reference::RotateHead;
using reference::StoreAct;

void PortableBackend::MlaKeys(const MlaKeysOp& op) {
  const MlaSpec& spec = *op.spec;
  const int64_t width = spec.kv_lora + spec.rope_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const auto element = static_cast<int64_t>(DTypeSize(act_dtype()));
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  ForTasks(count, static_cast<double>(count * width) * 4, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    const float* in = op.kv_a + at.row * width;
    std::vector<float> key(in, in + width);
    NormRow(spec.kv_norm, in, spec.kv_lora, op.kv_norm, nullptr, key.data());
    for (int64_t d = 0; spec.kv_scale != 1 && d < spec.kv_lora; ++d) key[static_cast<size_t>(d)] *= spec.kv_scale;
    NormRow(spec.k_rope_norm, in + spec.kv_lora, spec.rope_dim, op.k_rope_norm, nullptr, key.data() + spec.kv_lora);
    if (half > 0) {
      RotateHead(spec.rope->layout, op.cos + at.row * half, op.sin + at.row * half, half, key.data() + spec.kv_lora);
    }
    const int64_t block = at.block(at.position) * kKvBlockTokens;
    const int64_t token = at.position % kKvBlockTokens;
    StoreKey(key.data(), width, token, op.kv.k + block * width * element);
    if (op.kv.v != nullptr) StoreValue(key.data(), spec.kv_lora, token, op.kv.v + block * spec.kv_lora * element);
  });
}

void PortableBackend::MlaQueries(const MlaQueriesOp& op) {
  constexpr int64_t kHeads = 16;  // of a task
  const MlaSpec& spec = *op.spec;
  const DType act = act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  const int64_t in_dim = spec.nope_dim + spec.rope_dim;
  const int64_t out_dim = spec.kv_lora + spec.rope_dim;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const int64_t parts = (spec.num_heads + kHeads - 1) / kHeads;
  const int64_t tasks = static_cast<int64_t>(rows.size()) * parts;
  const double elements = static_cast<double>(rows.size()) * static_cast<double>(spec.num_heads * out_dim);
  ForTasks(tasks, elements * 2, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task / parts)];
    const float scale = spec.q_scale * PositionScaleAt(spec.query_scale, at.position);
    std::vector<float> rotated(static_cast<size_t>(spec.rope_dim));
    const int64_t first = task % parts * kHeads;
    for (int64_t h = first; h < std::min(first + kHeads, spec.num_heads); ++h) {
      const int64_t head = at.row * spec.num_heads + h;
      const float* absorbed = op.absorbed + head * spec.kv_lora;
      std::byte* out = op.q_out + head * out_dim * element;
      for (int64_t d = 0; d < spec.kv_lora; ++d) StoreAct(act, out, d, absorbed[d] * scale);
      std::copy_n(op.q + head * in_dim + spec.nope_dim, spec.rope_dim, rotated.begin());
      if (half > 0) {
        RotateHead(spec.rope->layout, op.cos + at.row * half, op.sin + at.row * half, half, rotated.data());
      }
      for (int64_t d = 0; d < spec.rope_dim; ++d) {
        StoreAct(act, out, spec.kv_lora + d, rotated[static_cast<size_t>(d)] * scale);
      }
    }
  });
}

}  // namespace moe
