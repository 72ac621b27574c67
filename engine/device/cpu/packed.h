// Packed weights of the cpu backend. The layout (panels of granules) is stated in kernels.h; it is the same for every
// instruction set, so one copy serves any path.
#ifndef MOE_ENGINE_DEVICE_CPU_PACKED_H_
#define MOE_ENGINE_DEVICE_CPU_PACKED_H_

#include <functional>
#include <span>

#include "engine/device/cpu/aligned_buffer.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/ops.h"
#include "engine/device/packed_cache.h"
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

// Raised when the layout of kernels.h changes: files of packed weights (PackedCache) of another one are not used.
inline constexpr int kPackedLayout = 1;

// Where packed weights lie: in a PackedCache, if there is one and it has room, else in memory of their own.
class PackedMemory {
 public:
  PackedMemory() = default;
  PackedMemory(size_t bytes, PackedCache* cache) {
    const PackedCache::Buffer cached = cache != nullptr ? cache->Next(bytes) : PackedCache::Buffer{};
    packed_ = cached.packed;
    if (cached.data == nullptr) own_ = AlignedBuffer(bytes);
    data_ = cached.data != nullptr ? reinterpret_cast<char*>(cached.data) : own_.data();
  }
  char* data() const { return data_; }
  bool packed() const { return packed_; }  // the weights are there already

 private:
  AlignedBuffer own_;
  char* data_ = nullptr;
  bool packed_ = false;
};

class CpuMatrix : public PackedMatrix {
 public:
  // `cache`, if not null, outlives this.
  CpuMatrix(std::span<const WeightSource> parts, DType format, PackedCache* cache, WorkerPool* pool);
  const PackedShape& shape() const { return shape_; }
  const char* data() const { return buffer_.data(); }

 private:
  PackedShape shape_;
  PackedMemory buffer_;
};

class CpuExperts : public PackedExperts {
 public:
  CpuExperts(std::span<const ExpertSource> experts, bool gated, DType format,
             const std::function<void(int64_t)>& release, PackedCache* cache, WorkerPool* pool);
  // Backend::SetExpert.
  void Set(int64_t expert, const ExpertSource* source, WorkerPool* pool);
  bool gated() const { return gated_; }
  // [I, W], or gate and up interleaved by blocks: [2I, W].
  const PackedShape& up_shape() const { return up_; }
  const PackedShape& down_shape() const { return down_; }
  const char* up(int64_t expert) const { return buffer_.data() + expert * (up_.bytes() + down_.bytes()); }
  const char* down(int64_t expert) const { return up(expert) + up_.bytes(); }

 private:
  size_t expert_bytes() const { return static_cast<size_t>(up_.bytes() + down_.bytes()); }
  void PackOne(int64_t expert, const ExpertSource& source, WorkerPool* pool);

  bool gated_;
  PackedShape up_;
  PackedShape down_;
  PackedMemory buffer_;
};

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_PACKED_H_
