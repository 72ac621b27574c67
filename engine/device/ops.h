// The operations of a backend as plain structs: what comes in, what goes out, in which shapes. No tensor classes here,
// so that kernels of any kind can be written against them. All matrices are row-major; `stride` counts elements.
//
// "act" is the activation dtype of the model in memory (bfloat16 for bfloat16 weights, float32 for float32 and float16
// weights): a float32 row is rounded to it once, on entering a GEMM, the K/V cache or the wire. Everything else is
// float32. The order of every sum depends on the shapes of the weights alone, never on how many rows there are
// (architecture: the numerics contract, N1–N8).
#ifndef MOE_ENGINE_DEVICE_OPS_H_
#define MOE_ENGINE_DEVICE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "loaders/model_spec.h"
#include "loaders/weight_store.h"
#include "parallel/base/dtype.h"

namespace moe {

// Tokens in one block of the K/V cache: the unit of paging, prefix reuse and of the attention sum (N5).
inline constexpr int64_t kKvBlockTokens = 32;

// A weight matrix in a backend's own layout. Immutable, shared by the ranks of a process.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t rows() const { return rows_; }    // N, outputs
  int64_t cols() const { return cols_; }    // K, inputs
  DType format() const { return format_; }  // of the stored elements
  size_t bytes() const { return bytes_; }

 protected:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  DType format_ = DType::kF32;
  size_t bytes_ = 0;
};

// The MLPs of a set of experts of one shape, in a backend's own layout. A dense MLP or a shared expert is a set of one.
class PackedExperts {
 public:
  virtual ~PackedExperts() = default;
  int64_t num_experts() const { return num_experts_; }
  int64_t width() const { return width_; }  // of rows in and out
  int64_t intermediate() const { return intermediate_; }
  DType format() const { return format_; }
  size_t bytes() const { return bytes_; }

 protected:
  int64_t num_experts_ = 0;
  int64_t width_ = 0;
  int64_t intermediate_ = 0;
  DType format_ = DType::kF32;
  size_t bytes_ = 0;
};

// The sources of one expert's matrices; `gate` is empty (data == nullptr) when the MLP has no gate.
struct ExpertSource {
  WeightSource gate;  // [I, W]
  WeightSource up;    // [I, W]
  WeightSource down;  // [W, I]
};

// Rows in `dtype`.
struct RowsView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements
  const std::byte* row(int64_t i) const { return data + i * stride * static_cast<int64_t>(DTypeSize(dtype)); }
};

// out[i] = scale * table[ids[i]], widened to float32.
struct EmbedOp {
  WeightSource table;  // [V, H]
  std::span<const int32_t> ids;
  float scale = 1.0f;
  float* out = nullptr;  // [ids, H]
};

// Norm over the last dimension of each row; writes what is not null.
struct NormOp {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t stride = 0;
  NormSpec spec;                  // kNone: the row as it is
  const float* weight = nullptr;  // [dim], or null: 1
  const float* bias = nullptr;    // [dim], kLayer with bias
  float* out_f32 = nullptr;       // [rows, dim]
  std::byte* out_act = nullptr;   // [rows, dim] in act
};

// out_act[r] = round(row_scale[r] * x[r / repeat]).
struct RoundOp {
  const float* x = nullptr;
  const float* row_scale = nullptr;  // [rows], or null: 1
  int64_t repeat = 1;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t stride = 0;
  std::byte* out_act = nullptr;  // [rows, dim]
};

// out = a · wᵀ (+ bias), or out += …; float32 sums.
struct GemmOp {
  RowsView a;  // act; float32 where the matrix was packed as float32 from a router
  const PackedMatrix* w = nullptr;
  const float* bias = nullptr;  // [N]
  float* out = nullptr;         // [rows, N]
  int64_t out_stride = 0;
  bool accumulate = false;
};

struct ExpertGroup {
  int32_t expert = 0;  // index in PackedExperts or of a matrix
  int32_t begin = 0;   // rows [begin, end) of the op's
  int32_t end = 0;
};

// out[i] = w[group] · rows[i]: a GEMM for each group, with rows from anywhere.
struct GroupedGemmOp {
  std::span<const std::unique_ptr<PackedMatrix>> w;  // of one shape, by ExpertGroup::expert
  std::span<const std::byte* const> rows;            // act rows, sorted by group
  std::span<const ExpertGroup> groups;
  float* out = nullptr;  // [rows, N]
};

// x = f(x), an activation without gate.
struct ActivateOp {
  Activation activation = Activation::kSilu;
  float* x = nullptr;
  int64_t count = 0;
};

// The weights of chosen experts and sinks together (RouterSpec::sinks): scale * sigmoid(z) / Σ sigmoid(z).
struct SinkWeightsOp {
  const float* logits = nullptr;       // [rows, num_experts]
  const float* sink_logits = nullptr;  // [rows, sinks]
  const int32_t* ids = nullptr;        // [rows, top_k]
  int64_t num_experts = 0;
  int64_t sinks = 0;
  int64_t top_k = 0;
  int64_t rows = 0;
  float scale = 1;
  float* weights = nullptr;       // [rows, top_k]
  float* sink_weights = nullptr;  // [sinks, rows]
};

// Top-k of one router (formulas: engine/device/reference/route_row.h). Slots are in the order of the selection score,
// best first; equal scores go to the lowest expert id.
struct RouteOp {
  const RouterSpec* spec = nullptr;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  const float* logits = nullptr;        // [rows, E]
  const float* logit_bias = nullptr;    // [E] or null
  const float* select_bias = nullptr;   // [E] or null
  const float* expert_scale = nullptr;  // [E] or null: multiplies the chosen weights
  const int32_t* given = nullptr;       // [rows, k] or null: the experts, where they are not chosen by score
  int64_t rows = 0;
  int32_t* ids = nullptr;    // [rows, k]
  float* weights = nullptr;  // [rows, k], without RouterSpec::scale
};

// out[i] = down_e(act(gate_e·x, up_e·x)) for the rows of each group. The intermediate row is rounded to act once.
// Each expert's weights are read once, however many rows chose it.
struct ExpertsOp {
  const PackedExperts* experts = nullptr;
  Activation activation = Activation::kSilu;
  float limit = 0;  // MlpSpec::limit and alpha
  float alpha = 0;
  const float* gate_bias = nullptr;        // [experts, I], or null
  const float* up_bias = nullptr;          // [experts, I], or null
  const float* down_bias = nullptr;        // [experts, width], or null
  std::span<const std::byte* const> rows;  // pointers to act rows [width], sorted by group
  std::span<const ExpertGroup> groups;     // not empty ones, ascending by begin, covering all rows
  DType out_dtype = DType::kF32;           // act or float32
  std::byte* out = nullptr;                // [rows, width]
};

// r = scale * Σ_slot weights[t, slot] * slot_rows[t, slot] (+ bias), float32, in slot order (N7); then
// out_act = round(r) if not null, else out_f32 += r.
struct CombineOp {
  int64_t rows = 0;
  int64_t top_k = 0;
  int64_t dim = 0;
  DType slot_dtype = DType::kF32;               // act
  std::span<const std::byte* const> slot_rows;  // [rows * top_k] pointers to [dim]
  const float* weights = nullptr;               // [rows, top_k]; null: all 1
  float scale = 1.0f;
  const float* bias = nullptr;   // [dim] or null
  float* out_f32 = nullptr;      // [rows, dim]
  std::byte* out_act = nullptr;  // [rows, dim]
};

// dst[i] = skip * dst[i] + scale * gate[i] * src[i]; gate null: 1. With sigmoid_gate, gate[i] is passed through the
// logistic function first.
struct AddRowsOp {
  float* dst = nullptr;
  const float* src = nullptr;
  float skip = 1;
  float scale = 1;
  const float* gate = nullptr;  // [rows]
  bool sigmoid_gate = false;
  int64_t rows = 0;
  int64_t dim = 0;
};

// dst = (dst + dst_bias) * dst_scale + (src + src_bias) * src_scale, vectors [dim]. Null vectors: bias 0, scale 1; src
// null: without the second part.
struct AffineOp {
  float* dst = nullptr;
  const float* dst_bias = nullptr;
  const float* dst_scale = nullptr;
  const float* src = nullptr;
  const float* src_bias = nullptr;
  const float* src_scale = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
};

// One attention layer's part of the paged cache, in act. Block b, head h of K are the kKvBlockTokens * head_dim
// elements from (b * kv_heads + h) * kKvBlockTokens * head_dim on; V likewise with v_head_dim. Inside, a backend
// arranges tokens and dims as it likes (reference: [token][d]); blocks are moved between backends of one name() only.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  float* plane = nullptr;  // [block][token][plane_width]: what a mixer keeps of a token beside K and V
  int64_t plane_width = 0;
  float* tail = nullptr;  // [block][tail_size]: see WindowOp
  int64_t tail_size = 0;
  int64_t num_blocks = 0;
};

// A slice of a sequence as a mixer sees it: rows [row0, row0 + count) are positions first_pos …
struct MixerSlice {
  int64_t row0 = 0;
  int64_t first_pos = 0;
  int64_t count = 0;
  std::span<const int32_t> blocks;  // block of position p: blocks[p / kKvBlockTokens]
  // Recurrent mixers: the sequence's state of this layer, CacheOf(mixer).state floats, all 0 before position 0. A
  // mixer with a convolution has its window first: [channels, kernel - 1], oldest input first.
  float* state = nullptr;
};

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
  KvLayer kv;  // K: [latent | rope], V: latent
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

// Hyper-connections (HyperSpec): what a block reads of the streams, and the weights its output is added with.
struct HyperReadOp {
  const HyperSpec* spec = nullptr;
  const float* streams = nullptr;  // [rows, n * dim]; kGated: their norm
  const float* mixes = nullptr;    // [rows, mixes], projected; a head's: [rows, n], or null with kGated
  const float* gates = nullptr;    // kGated: [rows, n * dim], before the sigmoid
  const float* base = nullptr;     // [mixes]; not with kGated
  const float* scale = nullptr;    // [parts of mixes]
  int64_t rows = 0;
  int64_t dim = 0;
  float* out = nullptr;   // [rows, dim]
  float* post = nullptr;  // [rows, n]; null: a head, which adds nothing
  float* comb = nullptr;  // kManifold: [rows, n, n]
};
// streams[r, k] = post[r, k] * y[r] + (Σ_i comb[r, i, k] streams[r, i], or streams[r, k] where comb is null).
struct HyperWriteOp {
  int64_t streams_per_row = 0;
  const float* y = nullptr;  // [rows, dim]
  const float* post = nullptr;
  const float* comb = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
  float* streams = nullptr;  // in and out
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

// The gated values of n-gram embeddings (NgramSpec): out = [u_0 | u_1 | …].
struct StreamGateOp {
  const float* key = nullptr;    // [rows, streams * dim], normed
  const float* query = nullptr;  // [rows, streams * dim], normed
  const float* value = nullptr;  // [rows, dim]
  int64_t rows = 0;
  int64_t streams = 0;
  int64_t dim = 0;
  float* out = nullptr;  // [rows, streams * dim]
};

// Causal depthwise convolution along the positions of each slice, then silu where asked: y[p, c] = f(Σ_i w[c, i] x[p -
// (K
// - 1 - i) · dilation, c] + bias[c]). Reads and moves on the window at the start of the slice's state, offset by
// state_offset floats: [channels, (kernel - 1) * dilation], oldest input first.
struct ConvOp {
  const float* x = nullptr;  // [rows, channels]
  int64_t stride = 0;
  int64_t channels = 0;
  int64_t kernel = 0;
  int64_t dilation = 1;           // at most NgramSpec::kMaxN
  const float* weight = nullptr;  // [channels, kernel]
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
  const float* in_gate = nullptr;   // multiplies x before all this: [rows, channels] with x's stride, or null
  const float* out_gate = nullptr;  // multiplies y: likewise
  int64_t state_offset = 0;
  std::span<const MixerSlice> slices;
  bool residual = false;         // y += x, before silu and gates
  float* out = nullptr;          // [rows, channels], or null; x itself where out_stride is x's
  int64_t out_stride = 0;        // 0: channels
  std::byte* out_act = nullptr;  // [rows, channels] in act, or null
};

// Mamba-2 between its two projections: convolution + silu, dt, recurrence, D, grouped gated norm. Position by position
// in float32, so a prompt cut anywhere gives the same bits (N6).
struct Mamba2Op {
  const Mamba2Spec* spec = nullptr;
  const float* proj = nullptr;  // [rows, in_proj_rows] = [z | x B C | dt]
  int64_t rows = 0;
  const float* conv_weight = nullptr;  // [conv_dim, kernel]
  const float* conv_bias = nullptr;    // [conv_dim] or null
  const float* dt_bias = nullptr;      // [heads]
  const float* a_log = nullptr;        // [heads]
  const float* d = nullptr;            // [heads]
  const float* norm = nullptr;         // [inner]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, inner]
};

// The gated delta rule behind its convolution, with output norm and gate (GatedDeltaSpec), position by position.
// State: behind the window, [value heads, k_head_dim, v_head_dim].
struct GatedDeltaOp {
  const GatedDeltaSpec* spec = nullptr;
  const float* qkv = nullptr;    // [rows, conv_dim] = [q | k | v] after convolution and silu
  const float* decay = nullptr;  // [rows, value heads] or [rows, k_dim]: W_a x
  const float* beta = nullptr;   // [rows, value heads]: W_b x
  const float* z = nullptr;      // [rows, v_dim]: the output gate before its activation
  int64_t decay_stride = 0;
  int64_t beta_stride = 0;
  int64_t z_stride = 0;
  int64_t rows = 0;
  const float* a_log = nullptr;    // [value heads]
  const float* dt_bias = nullptr;  // [value heads] or [k_dim]
  const float* norm = nullptr;     // [v_head_dim]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, v_dim]
};

// Mamba-1's selective scan: dt = softplus(dt), A = -exp(a_log), h = exp(dt A) h + dt B x, y = (C·h + D x) * silu(z).
// State: behind the window, [inner, state].
struct Mamba1Op {
  const Mamba1Spec* spec = nullptr;
  const float* x = nullptr;  // [rows, inner] after convolution and silu
  const float* z = nullptr;  // [rows, inner]
  int64_t z_stride = 0;
  const float* dt = nullptr;  // [rows, inner] with its bias, before softplus
  const float* b = nullptr;   // [rows, state], normed
  const float* c = nullptr;   // [rows, state], normed
  int64_t bc_stride = 0;
  int64_t rows = 0;
  const float* a_log = nullptr;  // [inner, state]
  const float* d = nullptr;      // [inner]
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, inner]
};

// Lightning attention with its activation, norms, RoPE, output norm and gate. State: [heads, head_dim, head_dim].
struct LightningOp {
  const LightningSpec* spec = nullptr;
  const float* qkv = nullptr;   // [rows, 3 * width] = [q | k | v] as projected
  const float* gate = nullptr;  // [rows, width] before sigmoid
  int64_t qkv_stride = 0;
  int64_t gate_stride = 0;
  int64_t rows = 0;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* norm = nullptr;  // [width]
  const float* cos = nullptr;   // [rows, rotary_dim / 2]
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  std::byte* out_act = nullptr;  // [rows, width]
};

// Per row of logits: the largest value's id (lowest id of equals) and log Σ exp.
struct LogitStatsOp {
  const float* logits = nullptr;
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t stride = 0;
  int32_t* argmax = nullptr;     // [rows]
  float* max = nullptr;          // [rows]
  float* log_sum_exp = nullptr;  // [rows]
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_OPS_H_
