// What operations work on: packed weights, rows, the paged cache of a layer and slices of sequences.
#ifndef MOE_ENGINE_DEVICE_DEVICE_TENSORS_H_
#define MOE_ENGINE_DEVICE_DEVICE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <span>

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
  size_t bytes() const { return bytes_; }  // of those held

 protected:
  int64_t num_experts_ = 0;
  int64_t width_ = 0;
  int64_t intermediate_ = 0;
  DType format_ = DType::kF32;
  size_t bytes_ = 0;
};

// The sources of one expert's matrices; `gate` is empty (data == nullptr) when the MLP has no gate. Not held: the set
// has room for the expert, but not its weights (Backend::SetExpert).
struct ExpertSource {
  WeightSource gate;  // [I, W]
  WeightSource up;    // [I, W]
  WeightSource down;  // [W, I]
  bool held = true;
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

// One attention layer's part of the paged cache, in act. Block b, head h of K are the kKvBlockTokens * head_dim
// elements from (b * kv_heads + h) * kKvBlockTokens * head_dim on; V likewise with v_head_dim. Inside, a backend
// arranges tokens and dims as it likes (reference: [token][d]); blocks are moved between backends of one name() only.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;  // null: a key's first v_head_dim dims are its value
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

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_DEVICE_TENSORS_H_
