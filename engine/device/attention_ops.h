// Operations of the attention mixers: what goes into the cache, who may read what, attention itself.
#ifndef MOE_ENGINE_DEVICE_ATTENTION_OPS_H_
#define MOE_ENGINE_DEVICE_ATTENTION_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/device_tensors.h"
#include "loaders/attention_spec.h"

namespace moe {

// Splits qkv rows, clips them, applies QK-norm, V-norm, RoPE and the query's factors, rounds to act, writes q to
// `q_out` and k, v to the cache. A layer that shares another's K/V has q alone.
struct QkvOp {
  const AttentionSpec* spec = nullptr;
  const float* qkv = nullptr;  // [rows, heads*head_dim + kv_heads*head_dim + kv_heads*v_head_dim]
  int64_t stride = 0;          // elements from row to row
  int64_t rows = 0;
  const float* q_norm = nullptr;  // null: no weight
  const float* k_norm = nullptr;
  const float* v_norm = nullptr;
  const float* cos = nullptr;  // [rows, rotary_dim / 2]; null without RoPE
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;
  std::byte* q_out = nullptr;  // [rows, heads * head_dim] in act
};

// What operations that look back a few positions need of those before each slice. The rows are kept in the blocks'
// tails, rings of the last `window` rows of a block: whoever has the blocks of a prefix, cached or not, can go on
// from it.
struct WindowOp {
  const float* x = nullptr;  // [rows, channels]
  int64_t stride = 0;
  int64_t channels = 0;
  int64_t window = 0;             // ≤ kKvBlockTokens
  const float* before = nullptr;  // [channels]: a row before position 0; null: 0
  int64_t tail_offset = 0;        // of this ring, [window, channels], in a block's tail
  std::span<const MixerSlice> slices;
  KvLayer kv;
  float* out = nullptr;  // [slices, channels, window]: the rows before each slice, oldest first, as ConvOp's states
};

// Every row with its predecessors: out[r] = [x at the last `taps` positions, oldest first] for each channel.
struct UnfoldOp {
  const float* x = nullptr;  // [rows, channels]
  int64_t stride = 0;
  int64_t channels = 0;
  int64_t taps = 0;
  std::span<const MixerSlice> slices;  // states: [channels, taps - 1], of WindowOp
  float* out = nullptr;                // [rows, channels, taps]
};

// Queries, keys and values of compressed convolutional attention from their parts (CcaSpec), before RoPE.
struct CcaOp {
  const AttentionSpec* spec = nullptr;
  const float* q = nullptr;  // rows `stride` apart: q as projected, and so on
  const float* k = nullptr;
  const float* v = nullptr;          // [rows, kv_heads * head_dim / 2]
  const float* v_delayed = nullptr;  // likewise
  int64_t stride = 0;
  const float* conv = nullptr;         // [rows, q and k dims], after both convolutions
  const float* key_scale = nullptr;    // [kv_heads]
  std::span<const MixerSlice> slices;  // states: v_delayed of the row before the slice
  float* out = nullptr;                // [rows, q, k and v dims]
};

// The keys each query row may read, for attention behind an indexer.
struct KeySelection {
  int32_t* positions = nullptr;  // [rows, groups, width], ascending; -1 behind the last
  int64_t width = 0;
  int64_t groups = 1;  // equal runs of query heads, each with positions of its own
};

// Causal softmax attention over the paged cache: keys in blocks at absolute positions, ascending, with a running
// maximum in float32 (N5). The row of position p sees keys j ≤ p that window, chunk and selection leave.
struct AttentionOp {
  const AttentionSpec* spec = nullptr;
  const std::byte* q = nullptr;  // [rows, heads * head_dim] in act
  const float* sinks = nullptr;  // [heads] or null
  const KeySelection* selection = nullptr;
  // Of RelativeBiasSpec, or null: x of each row (times its position scale), [rows, heads * dim], and the biases by
  // distance, turned round between two blocks of zeros: distance d is at [r, kKvBlockTokens + extent - 1 - d].
  const float* relative = nullptr;
  int64_t relative_stride = 0;
  const float* relative_bias = nullptr;  // [dim, extent + 2 * kKvBlockTokens]
  std::span<const MixerSlice> slices;
  KvLayer kv;
  std::byte* out_act = nullptr;  // [rows, heads * v_head_dim]
};

// x[r] = f(x[r] , gate[r]) in place: attention outputs times their gates (AttentionGate), rounded to act.
struct GateOp {
  AttentionGate kind = AttentionGate::kNone;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  const float* gate = nullptr;  // [rows, heads * head_dim] or [rows, heads] before sigmoid or softplus
  int64_t gate_stride = 0;
  const float* head_bias = nullptr;  // [heads] or null, added to the gate
  std::byte* act = nullptr;          // [rows, heads * head_dim], in and out
};

// Latent attention before the attention proper. From the normed latent and the rope part of the key to the cache, and
// from the q rows to absorbed queries. k_up and the rest are GEMMs of the mixer.
struct MlaKeysOp {
  const MlaSpec* spec = nullptr;
  const float* kv_a = nullptr;  // [rows, kv_lora + rope]
  int64_t rows = 0;
  const float* kv_norm = nullptr;
  const float* k_rope_norm = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;  // K: [latent | rope], V: latent (where v is not null)
};
struct MlaQueriesOp {
  const MlaSpec* spec = nullptr;
  const float* q = nullptr;         // [rows, heads * (nope + rope)], of which the rope part is read
  const float* absorbed = nullptr;  // [rows, heads * kv_lora]: k_upᵀ · q_nope
  int64_t rows = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  std::byte* q_out = nullptr;  // [rows, heads * (kv_lora + rope)] in act
};

// The lightning indexer: writes each row's index key to the layer's plane, scores the keys up to it and picks the best
// top_k, lowest position of equals first.
struct IndexerOp {
  const IndexerSpec* spec = nullptr;
  const float* q = nullptr;        // [rows, heads * head_dim]
  const float* k = nullptr;        // [rows, head_dim]
  const float* weights = nullptr;  // [rows, heads]
  int64_t rows = 0;
  const float* key_norm = nullptr;
  const float* key_norm_bias = nullptr;
  const float* cos = nullptr;  // [rows, rotary_dim / 2]
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;                    // its plane
  int32_t* positions = nullptr;  // out: KeySelection of width spec->top_k; null: keys alone, q and weights are unused
};

// Attention over a window and compressed entries (CompressedAttentionSpec), in three operations.
// A token's plane: [kv | gate + bias] of the compressor, then of the indexer, each series() * head_dim wide. Entry and
// index key of a block take the place of the last series of kv at the block's last position, which no other block
// reads.
struct CompressedKeysOp {
  const CompressedAttentionSpec* spec = nullptr;
  const float* kv = nullptr;  // [rows, head_dim + plane]: the key, then the plane's inputs
  int64_t stride = 0;
  int64_t rows = 0;
  const float* kv_norm = nullptr;
  const float* bias = nullptr;        // [rate, series * head_dim]
  const float* norm = nullptr;        // of entries
  const float* index_bias = nullptr;  // [rate, series * the indexer's head_dim]
  const float* index_norm = nullptr;
  const float* cos = nullptr;  // [rows, rotary_dim / 2]
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv_layer;
};
// entries [rows, top_k]: the best for each row, ascending, -1 behind the last; rows that have no more than top_k
// entries are left out, since they read all.
struct CompressedIndexOp {
  const CompressedAttentionSpec* spec = nullptr;
  const float* q = nullptr;        // [rows, heads * head_dim] of the indexer, not yet rotated
  const float* weights = nullptr;  // [rows, heads]
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;
  int32_t* entries = nullptr;
};
struct CompressedAttentionOp {
  const CompressedAttentionSpec* spec = nullptr;
  const float* q = nullptr;  // [rows, heads * head_dim], neither normed nor rotated
  const float* sinks = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* entries = nullptr;  // of CompressedIndexOp; null: all
  std::span<const MixerSlice> slices;
  KvLayer kv;
  std::byte* out_act = nullptr;  // [rows, heads * head_dim]
};

// The scorer of block-sparse attention (BlockIndexerSpec): writes what it keeps of each row to the layer's plane, then
// chooses the keys of the rows from position spec->first_choice() on; other rows' positions are left alone.
struct BlockIndexerOp {
  const BlockIndexerSpec* spec = nullptr;
  const RopeSpec* rope = nullptr;  // or null
  const float* qk = nullptr;       // [rows, heads * head_dim + head_dim] = [q | k]
  int64_t rows = 0;
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;  // [head_dim]
  const float* cos = nullptr;     // [rows, rotary_dim / 2]
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;                    // its plane
  int32_t* positions = nullptr;  // out: KeySelection of spec's width and groups; null: no row has to choose
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_ATTENTION_OPS_H_
