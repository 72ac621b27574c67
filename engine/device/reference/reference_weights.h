// Weights of the reference backend: plain row-major matrices in the packed format's dtype.
#ifndef MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_WEIGHTS_H_
#define MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_WEIGHTS_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/ops.h"

namespace moe {

class ReferenceMatrix : public PackedMatrix {
 public:
  ReferenceMatrix(std::span<const WeightSource> parts, DType format);
  float At(int64_t row, int64_t col) const {
    const std::byte* row_data = data_.data() + row * cols_ * static_cast<int64_t>(DTypeSize(format_));
    return format_ == DType::kF32    ? reinterpret_cast<const float*>(row_data)[col]
           : format_ == DType::kBF16 ? Bf16ToFloat(reinterpret_cast<const bf16_t*>(row_data)[col])
                                     : F16ToFloat(reinterpret_cast<const f16_t*>(row_data)[col]);
  }

 private:
  std::vector<std::byte> data_;  // [rows, cols]
};

class ReferenceExperts : public PackedExperts {
 public:
  ReferenceExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                   const std::function<void(int64_t)>& release);
  struct Expert {
    std::unique_ptr<ReferenceMatrix> gate;  // [I, W]; null when not gated
    std::unique_ptr<ReferenceMatrix> up;    // [I, W]
    std::unique_ptr<ReferenceMatrix> down;  // [W, I]
  };
  const Expert& expert(int64_t e) const { return experts_[e]; }
  // Backend::SetExpert.
  void Set(int64_t e, const ExpertSource* source);

 private:
  std::vector<Expert> experts_;
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_WEIGHTS_H_
