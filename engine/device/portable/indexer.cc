#include "engine/device/portable/key_scores.h"
#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {

using reference::NormRow;
using reference::RotateHead;

void PortableBackend::Indexer(const IndexerOp& op) {
  const IndexerSpec& spec = *op.spec;
  const int64_t half = spec.rope ? spec.rope->rotary_dim / 2 : 0;
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  const auto key_of = [&](const SliceRow& at, int64_t position) {
    return op.kv.plane + (at.block(position) * kKvBlockTokens + position % kKvBlockTokens) * op.kv.plane_width;
  };
  const auto rotate = [&](int64_t row, float* head) {
    if (half == 0) return;
    if (spec.rope_last) head += spec.head_dim - 2 * half;
    RotateHead(spec.rope->layout, op.cos + row * half, op.sin + row * half, half, head);
  };
  // All keys first: a row scores those of the rows before it in its slice.
  ForTasks(count, static_cast<double>(count * spec.head_dim) * 4, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    float* key = key_of(at, at.position);
    NormRow(spec.key_norm, op.k + at.row * spec.head_dim, spec.head_dim, op.key_norm, op.key_norm_bias, key);
    rotate(at.row, key);
  });
  if (op.positions == nullptr) return;
  SelectKeys({.heads = spec.num_heads,
              .head_dim = spec.head_dim,
              .top_k = spec.top_k,
              .q = op.q,
              .weights = op.weights,
              .rows = rows,
              .rotate = rotate,
              .count = [](const SliceRow& at) { return at.position + 1; },
              .key = key_of,
              .chosen = op.positions},
             [this](int64_t tasks, double work, const std::function<void(int64_t)>& fn) { ForTasks(tasks, work, fn); });
}

}  // namespace moe
