// Where a CompressedAttentionSpec's layers keep things in a token's plane row (CompressedKeysOp).
#ifndef MOE_ENGINE_DEVICE_PORTABLE_COMPRESSED_PLANE_H_
#define MOE_ENGINE_DEVICE_PORTABLE_COMPRESSED_PLANE_H_

#include "engine/device/portable/slice_rows.h"

namespace moe {

// [kv | gate] of a compressor whose entries have `dim` values, at `begin` of the row.
struct CompressedPlane {
  int64_t begin = 0;
  int64_t dim = 0;
  int64_t series = 1;
  int64_t rate = 1;
  int64_t kv(int64_t s) const { return begin + s * dim; }
  int64_t gate(int64_t s) const { return begin + (series + s) * dim; }
};
inline CompressedPlane EntryPlane(const CompressedAttentionSpec& spec) {
  return {.begin = 0, .dim = spec.head_dim, .series = spec.series(), .rate = spec.compressor->rate};
}
inline CompressedPlane IndexPlane(const CompressedAttentionSpec& spec) {
  return {.begin = 2 * spec.series() * spec.head_dim,
          .dim = spec.indexer->head_dim,
          .series = spec.series(),
          .rate = spec.compressor->rate};
}

inline float* PlaneRow(const KvLayer& kv, const SliceRow& at, int64_t position) {
  return kv.plane + (at.block(position) * kKvBlockTokens + position % kKvBlockTokens) * kv.plane_width;
}
// Entry w, once its block is complete.
inline float* EntryOf(const CompressedPlane& plane, const KvLayer& kv, const SliceRow& at, int64_t w) {
  return PlaneRow(kv, at, (w + 1) * plane.rate - 1) + plane.kv(plane.series - 1);
}
// How many entries the row of a position may read.
inline int64_t EntriesAt(const CompressedAttentionSpec& spec, int64_t position) {
  return spec.compressor ? (position + 1) / spec.compressor->rate : 0;
}

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_PORTABLE_COMPRESSED_PLANE_H_
