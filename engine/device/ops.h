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
  NormSpec spec;
  const float* weight = nullptr;  // [dim]
  const float* bias = nullptr;    // [dim], kLayer with bias
  float* out_f32 = nullptr;       // [rows, dim]
  std::byte* out_act = nullptr;   // [rows, dim] in act
};

// out_act = round(x).
struct RoundOp {
  const float* x = nullptr;
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

// Top-k of one router (formulas: engine/device/reference/route_row.h). Slots are in the order of the selection score,
// best first; equal scores go to the lowest expert id.
struct RouteOp {
  const RouterSpec* spec = nullptr;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  const float* logits = nullptr;       // [rows, E]
  const float* logit_bias = nullptr;   // [E] or null
  const float* select_bias = nullptr;  // [E] or null
  int64_t rows = 0;
  int32_t* ids = nullptr;    // [rows, k]
  float* weights = nullptr;  // [rows, k], without RouterSpec::scale
};

struct ExpertGroup {
  int32_t expert = 0;  // index in PackedExperts
  int32_t begin = 0;   // rows [begin, end) of ExpertsOp::rows
  int32_t end = 0;
};

// out[i] = down_e(act(gate_e·x, up_e·x)) for the rows of each group. The intermediate row is rounded to act once.
// Each expert's weights are read once, however many rows chose it.
struct ExpertsOp {
  const PackedExperts* experts = nullptr;
  Activation activation = Activation::kSilu;
  std::span<const std::byte* const> rows;  // pointers to act rows [width], sorted by group
  std::span<const ExpertGroup> groups;     // not empty ones, ascending by begin, covering all rows
  DType out_dtype = DType::kF32;           // act or float32
  std::byte* out = nullptr;                // [rows, width]
};

// r = scale * Σ_slot weights[t, slot] * slot_rows[t, slot], float32, in slot order (N7); then
// out_act = round(r) if not null, else out_f32 += r.
struct CombineOp {
  int64_t rows = 0;
  int64_t top_k = 0;
  int64_t dim = 0;
  DType slot_dtype = DType::kF32;               // act
  std::span<const std::byte* const> slot_rows;  // [rows * top_k] pointers to [dim]
  const float* weights = nullptr;               // [rows, top_k]
  float scale = 1.0f;
  float* out_f32 = nullptr;      // [rows, dim]
  std::byte* out_act = nullptr;  // [rows, dim]
};

// dst[i] += gate[i] * src[i]; gate null: 1. With sigmoid_gate, gate[i] is passed through the logistic function first.
struct AddRowsOp {
  float* dst = nullptr;
  const float* src = nullptr;
  const float* gate = nullptr;  // [rows]
  bool sigmoid_gate = false;
  int64_t rows = 0;
  int64_t dim = 0;
};

// One attention layer's part of the paged cache, in act. Block b, head h of K are the kKvBlockTokens * head_dim
// elements from (b * kv_heads + h) * kKvBlockTokens * head_dim on; V likewise with v_head_dim. Inside, a backend
// arranges tokens and dims as it likes (reference: [token][d]); blocks are moved between backends of one name() only.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  int64_t num_blocks = 0;
};

// A slice of a sequence as a mixer sees it: rows [row0, row0 + count) are positions first_pos …
struct MixerSlice {
  int64_t row0 = 0;
  int64_t first_pos = 0;
  int64_t count = 0;
  std::span<const int32_t> blocks;  // block of position p: blocks[p / kKvBlockTokens]
  float* conv_state = nullptr;      // recurrent mixers: [conv_dim, kernel - 1], oldest first; zeros before position 0
  float* ssm_state = nullptr;       // [heads, head_dim, state]
};

// Splits qkv rows, applies QK-norm and RoPE, rounds to act, writes q to `q_out` and k, v to the cache.
struct QkvOp {
  const AttentionSpec* spec = nullptr;
  const float* qkv = nullptr;  // [rows, heads*head_dim + kv_heads*head_dim + kv_heads*v_head_dim]
  int64_t rows = 0;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* cos = nullptr;  // [rows, rotary_dim / 2]; null without RoPE
  const float* sin = nullptr;
  std::span<const MixerSlice> slices;
  KvLayer kv;
  std::byte* q_out = nullptr;  // [rows, heads * head_dim] in act
};

// Causal softmax attention over the paged cache: keys in blocks at absolute positions, ascending, with a running
// maximum in float32 (N5). Row of position p sees keys j ≤ p (and p - j < window).
struct AttentionOp {
  const AttentionSpec* spec = nullptr;
  const std::byte* q = nullptr;  // [rows, heads * head_dim] in act
  std::span<const MixerSlice> slices;
  KvLayer kv;
  std::byte* out_act = nullptr;  // [rows, heads * v_head_dim]
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
