// Operations on rows: embedding, norms, GEMM, residual streams, logits.
#ifndef MOE_ENGINE_DEVICE_ROW_OPS_H_
#define MOE_ENGINE_DEVICE_ROW_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/device_tensors.h"
#include "loaders/model_spec.h"

namespace moe {

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

// x = f(x), an activation without gate.
struct ActivateOp {
  Activation activation = Activation::kSilu;
  float* x = nullptr;
  int64_t count = 0;
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

#endif  // MOE_ENGINE_DEVICE_ROW_OPS_H_
