#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/device/portable/compressed_plane.h"
#include "engine/device/portable/key_scores.h"
#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

using reference::NormRow;
using reference::RotateHead;
using reference::StoreAct;

constexpr int64_t kHeads = 8;  // query heads of one task: they share the reading of each key

// The entries that a row reads, ascending.
std::vector<int32_t> EntriesOf(const CompressedAttentionOp& op, const SliceRow& at) {
  std::vector<int32_t> entries;
  const int64_t count = EntriesAt(*op.spec, at.position);
  if (op.entries != nullptr && count > op.spec->indexer->top_k) {
    const int32_t* chosen = op.entries + at.row * op.spec->indexer->top_k;
    for (int64_t i = 0; i < op.spec->indexer->top_k && chosen[i] >= 0; ++i) entries.push_back(chosen[i]);
  } else {
    for (int64_t w = 0; w < count; ++w) entries.push_back(static_cast<int32_t>(w));
  }
  return entries;
}

}  // namespace

void PortableBackend::CompressedIndex(const CompressedIndexOp& op) {
  const CompressedAttentionSpec& spec = *op.spec;
  const CompressedPlane plane = IndexPlane(spec);
  const int64_t half = spec.rope.rotary_dim / 2;
  SelectKeys({.heads = spec.indexer->num_heads,
              .head_dim = plane.dim,
              .top_k = spec.indexer->top_k,
              .q = op.q,
              .weights = op.weights,
              .rows = RowsOf(op.slices),
              .rotate =
                  [&](int64_t row, float* head) {
                    RotateHead(spec.rope.layout, op.cos + row * half, op.sin + row * half, half,
                               head + plane.dim - 2 * half);
                  },
              .count = [&](const SliceRow& at) { return EntriesAt(spec, at.position); },
              .key = [&](const SliceRow& at, int64_t w) { return EntryOf(plane, op.kv, at, w); },
              .chosen = op.entries},
             [this](int64_t count, double work, const std::function<void(int64_t)>& fn) { ForTasks(count, work, fn); });
}

void PortableBackend::CompressedAttention(const CompressedAttentionOp& op) {
  const CompressedAttentionSpec& spec = *op.spec;
  const DType act = act_dtype();
  const auto element = static_cast<int64_t>(DTypeSize(act));
  const int64_t dim = spec.head_dim;
  const int64_t half = spec.rope.rotary_dim / 2;
  const int64_t parts = (spec.num_heads + kHeads - 1) / kHeads;
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  double keys_in_all = 0;
  for (const SliceRow& at : rows) {
    keys_in_all += static_cast<double>(std::min(at.position + 1, spec.window) + EntriesAt(spec, at.position));
  }
  const double work = keys_in_all * static_cast<double>(2 * spec.num_heads * dim);
  ForTasks(static_cast<int64_t>(rows.size()) * parts, work, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task / parts)];
    const int64_t first_head = task % parts * kHeads;
    const int64_t heads = std::min(kHeads, spec.num_heads - first_head);
    const float* cos = op.cos + at.row * half;
    const float* sin = op.sin + at.row * half;
    const std::vector<int32_t> entries = EntriesOf(op, at);
    const int64_t first_key = std::max<int64_t>(0, at.position + 1 - spec.window);
    const int64_t window = at.position + 1 - first_key;
    const int64_t keys = window + static_cast<int64_t>(entries.size());
    std::vector<float> loaded(static_cast<size_t>(dim));
    // Key i, which is also its value: the window's, then the entries.
    const auto key_at = [&](int64_t i) -> const float* {
      if (i >= window) {
        return EntryOf(EntryPlane(spec), op.kv, at, entries[static_cast<size_t>(i - window)]);
      }
      const int64_t p = first_key + i;
      LoadKey(op.kv.k + at.block(p) * kKvBlockTokens * dim * element, dim, p % kKvBlockTokens, loaded.data());
      return loaded.data();
    };

    // Queries turned to [head_dim][kHeads], the heads behind the last one 0.
    std::vector<float> q(static_cast<size_t>(dim * kHeads));
    std::vector<float> head(static_cast<size_t>(dim));
    float max[kHeads];
    for (int64_t h = 0; h < kHeads; ++h) {
      max[h] = h < heads ? op.sinks[first_head + h] : 0.0f;
      if (h >= heads) continue;
      NormRow(spec.norm, op.q + (at.row * spec.num_heads + first_head + h) * dim, dim, nullptr, nullptr, head.data());
      RotateHead(spec.rope.layout, cos, sin, half, head.data() + dim - 2 * half);
      for (int64_t d = 0; d < dim; ++d) q[static_cast<size_t>(d * kHeads + h)] = head[static_cast<size_t>(d)];
    }
    std::vector<float> scores(static_cast<size_t>(keys * kHeads));
    for (int64_t i = 0; i < keys; ++i) {
      const float* key = key_at(i);
      float dot[kHeads] = {};
      for (int64_t d = 0; d < dim; ++d) {
        const float* q_of_dim = q.data() + d * kHeads;
        for (int64_t h = 0; h < kHeads; ++h) dot[h] += q_of_dim[h] * key[d];
      }
      for (int64_t h = 0; h < heads; ++h) {
        scores[static_cast<size_t>(i * kHeads + h)] = dot[h] * spec.scale;
        max[h] = std::max(max[h], dot[h] * spec.scale);
      }
    }

    float denominator[kHeads];
    for (int64_t h = 0; h < heads; ++h) denominator[h] = std::exp(op.sinks[first_head + h] - max[h]);
    std::vector<float> sum(static_cast<size_t>(heads * dim));
    for (int64_t i = 0; i < keys; ++i) {
      const float* value = key_at(i);
      for (int64_t h = 0; h < heads; ++h) {
        const float p = std::exp(scores[static_cast<size_t>(i * kHeads + h)] - max[h]);
        denominator[h] += p;
        float* out = sum.data() + h * dim;
        for (int64_t d = 0; d < dim; ++d) out[d] += p * value[d];
      }
    }
    // Keys were rotated, and they are the values: the output is rotated back, which leaves distances alone in it.
    std::vector<float> back(sin, sin + half);
    for (float& s : back) s = -s;
    for (int64_t h = 0; h < heads; ++h) {
      float* row = sum.data() + h * dim;
      for (int64_t d = 0; d < dim; ++d) row[d] /= denominator[h];
      RotateHead(spec.rope.layout, cos, back.data(), half, row + dim - 2 * half);
      std::byte* out = op.out_act + (at.row * spec.num_heads + first_head + h) * dim * element;
      for (int64_t d = 0; d < dim; ++d) StoreAct(act, out, d, row[d]);
    }
  });
}

}  // namespace moe
