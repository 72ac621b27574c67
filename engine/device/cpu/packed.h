// Packed weights of the cpu backend. The layout (panels of granules) is stated in kernels.h; it is the same for every
// instruction set, so one copy serves any path.
#ifndef MOE_ENGINE_DEVICE_CPU_PACKED_H_
#define MOE_ENGINE_DEVICE_CPU_PACKED_H_

#include <functional>
#include <span>

#include "engine/device/cpu/aligned_buffer.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/ops.h"
#include "parallel/worker_pool.h"

namespace moe::cpu {

// kF32, kBF16 or kF16.
Element ElementOf(DType t);
constexpr int64_t ElementSize(Element e) {
  return e == Element::kF32 ? 4 : 2;
}

// Sizes of one packed [N, K].
struct PackedShape {
  int64_t blocks = 0;      // of 16 outputs
  int64_t k_granules = 0;  // of 32 inputs
  Element element = Element::kF32;
  int64_t granule_bytes() const { return kBlockN * kGranuleK * ElementSize(element); }
  int64_t bytes() const { return blocks * k_granules * granule_bytes(); }
  // Of the panel that begins at an even block.
  int64_t panel_offset(int64_t block) const { return block * k_granules * granule_bytes(); }
};
PackedShape ShapeOf(int64_t n, int64_t k, Element element);

class CpuMatrix : public PackedMatrix {
 public:
  CpuMatrix(std::span<const WeightSource> parts, DType format, WorkerPool* pool);
  const PackedShape& shape() const { return shape_; }
  const char* data() const { return buffer_.data(); }

 private:
  PackedShape shape_;
  AlignedBuffer buffer_;
};

class CpuExperts : public PackedExperts {
 public:
  CpuExperts(std::span<const ExpertSource> experts, bool gated, DType format,
             const std::function<void(int64_t)>& release, WorkerPool* pool);
  bool gated() const { return gated_; }
  // [I, W], or gate and up interleaved by blocks: [2I, W].
  const PackedShape& up_shape() const { return up_; }
  const PackedShape& down_shape() const { return down_; }
  const char* up(int64_t expert) const { return buffer_.data() + expert * (up_.bytes() + down_.bytes()); }
  const char* down(int64_t expert) const { return up(expert) + up_.bytes(); }

 private:
  bool gated_;
  PackedShape up_;
  PackedShape down_;
  AlignedBuffer buffer_;
};

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_PACKED_H_
