#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/device/portable/compressed_plane.h"
#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

using reference::NormRow;
using reference::RotateHead;
using reference::RotationAt;

// Copies one compressor's inputs to the row's plane, the gates with their bias.
void StoreInputs(const CompressedPlane& plane, const float* in, const float* bias, int64_t position, float* row) {
  const int64_t width = plane.series * plane.dim;
  std::copy_n(in + plane.kv(0), width, row + plane.kv(0));
  const float* bias_row = bias + position % plane.rate * width;
  for (int64_t d = 0; d < width; ++d) row[plane.gate(0) + d] = in[plane.gate(0) + d] + bias_row[d];
}

// The entry of the block that ends at the row's position, in its place. Tokens ascending, those of the block before
// first.
void Compress(const CompressedAttentionSpec& spec, const CompressedPlane& plane, const KvLayer& kv, const SliceRow& at,
              const float* norm) {
  struct Slot {
    const float* kv;
    const float* gate;
  };
  const int64_t begin = at.position + 1 - plane.rate;
  std::vector<Slot> slots;
  const auto add = [&](int64_t position, int64_t series) {
    const float* row = PlaneRow(kv, at, position);
    slots.push_back({row + plane.kv(series), row + plane.gate(series)});
  };
  if (plane.series > 1) {
    for (int64_t p = std::max<int64_t>(begin - plane.rate, 0); p < begin; ++p) add(p, 0);
  }
  for (int64_t p = begin; p <= at.position; ++p) add(p, plane.series - 1);

  const auto dim = static_cast<size_t>(plane.dim);
  std::vector<float> max(dim, -std::numeric_limits<float>::infinity());
  std::vector<float> sum(dim);
  std::vector<float> entry(dim);
  for (const Slot& slot : slots) {
    for (size_t d = 0; d < dim; ++d) max[d] = std::max(max[d], slot.gate[d]);
  }
  for (const Slot& slot : slots) {
    for (size_t d = 0; d < dim; ++d) {
      const float weight = std::exp(slot.gate[d] - max[d]);
      sum[d] += weight;
      entry[d] += weight * slot.kv[d];
    }
  }
  for (size_t d = 0; d < dim; ++d) entry[d] /= sum[d];
  NormRow(spec.norm, entry.data(), plane.dim, norm, nullptr, entry.data());
  const int64_t half = spec.rope.rotary_dim / 2;
  std::vector<float> cos(static_cast<size_t>(half));
  std::vector<float> sin(static_cast<size_t>(half));
  RotationAt(spec.rope, begin, cos.data(), sin.data());
  RotateHead(spec.rope.layout, cos.data(), sin.data(), half, entry.data() + plane.dim - 2 * half);
  std::copy(entry.begin(), entry.end(), PlaneRow(kv, at, at.position) + plane.kv(plane.series - 1));
}

}  // namespace

void PortableBackend::CompressedKeys(const CompressedKeysOp& op) {
  const CompressedAttentionSpec& spec = *op.spec;
  const int64_t half = spec.rope.rotary_dim / 2;
  const auto element = static_cast<int64_t>(DTypeSize(act_dtype()));
  const std::vector<SliceRow> rows = RowsOf(op.slices);
  const auto count = static_cast<int64_t>(rows.size());
  // All inputs first: a block reads those of the rows before it in its slice.
  ForTasks(count, static_cast<double>(count * (spec.head_dim + op.kv_layer.plane_width)) * 2, [&](int64_t task) {
    const SliceRow& at = rows[static_cast<size_t>(task)];
    const float* in = op.kv + at.row * op.stride;
    std::vector<float> key(static_cast<size_t>(spec.head_dim));
    NormRow(spec.norm, in, spec.head_dim, op.kv_norm, nullptr, key.data());
    RotateHead(spec.rope.layout, op.cos + at.row * half, op.sin + at.row * half, half,
               key.data() + spec.head_dim - 2 * half);
    const int64_t block = at.block(at.position) * kKvBlockTokens;
    StoreKey(key.data(), spec.head_dim, at.position % kKvBlockTokens, op.kv_layer.k + block * spec.head_dim * element);
    if (!spec.compressor) return;
    float* row = PlaneRow(op.kv_layer, at, at.position);
    StoreInputs(EntryPlane(spec), in + spec.head_dim, op.bias, at.position, row);
    if (spec.indexer) StoreInputs(IndexPlane(spec), in + spec.head_dim, op.index_bias, at.position, row);
  });
  if (!spec.compressor) return;

  std::vector<SliceRow> complete;
  for (const SliceRow& at : rows) {
    if ((at.position + 1) % spec.compressor->rate == 0) complete.push_back(at);
  }
  const auto blocks = static_cast<int64_t>(complete.size());
  ForTasks(blocks, static_cast<double>(blocks * spec.compressor->rate * op.kv_layer.plane_width) * 8,
           [&](int64_t task) {
             const SliceRow& at = complete[static_cast<size_t>(task)];
             Compress(spec, EntryPlane(spec), op.kv_layer, at, op.norm);
             if (spec.indexer) Compress(spec, IndexPlane(spec), op.kv_layer, at, op.index_norm);
           });
}

}  // namespace moe
