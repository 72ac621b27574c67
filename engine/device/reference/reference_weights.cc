#include "engine/device/reference/reference_weights.h"

#include "parallel/base/check.h"

namespace moe {

ReferenceMatrix::ReferenceMatrix(std::span<const WeightSource> parts, DType format) {
  MOE_CHECK(!parts.empty());
  format_ = format;
  cols_ = parts[0].cols;
  for (const WeightSource& part : parts) {
    MOE_CHECK_EQ(part.cols, cols_);
    rows_ += part.rows;
  }
  const auto element = static_cast<int64_t>(DTypeSize(format));
  bytes_ = static_cast<size_t>(rows_ * cols_ * element);
  data_.resize(bytes_);
  std::byte* out = data_.data();
  for (const WeightSource& part : parts) {
    const auto source_element = static_cast<int64_t>(DTypeSize(part.dtype));
    for (int64_t r = 0; r < part.rows; ++r) {
      for (int64_t c = 0; c < part.cols; ++c, out += element) {
        const std::byte* in = part.data + (part.RowOffset(r) + c * part.col_stride) * source_element;
        if (part.dtype == format) {
          std::memcpy(out, in, static_cast<size_t>(element));
        } else if (format == DType::kF32) {
          const float value = LoadFloat(part.dtype, in);
          std::memcpy(out, &value, sizeof(value));
        } else {
          MOE_CHECK(format == DType::kBF16) << "from " << DTypeName(part.dtype) << " to " << DTypeName(format);
          const bf16_t value = FloatToBf16(LoadFloat(part.dtype, in));
          std::memcpy(out, &value, sizeof(value));
        }
      }
    }
  }
}

ReferenceExperts::ReferenceExperts(std::span<const ExpertSource> experts, bool /*gated*/, DType format,
                                   const std::function<void(int64_t)>& release) {
  MOE_CHECK(!experts.empty());
  num_experts_ = static_cast<int64_t>(experts.size());
  width_ = experts[0].up.cols;
  intermediate_ = experts[0].up.rows;
  format_ = format;
  for (int64_t e = 0; e < num_experts_; ++e) {
    experts_.emplace_back();
    if (!experts[e].held) continue;
    Set(e, &experts[e]);
    if (release) release(e);
  }
}

void ReferenceExperts::Set(int64_t e, const ExpertSource* source) {
  Expert& expert = experts_[e];
  for (const auto* matrix : {&expert.gate, &expert.up, &expert.down}) {
    if (*matrix != nullptr) bytes_ -= (*matrix)->bytes();
  }
  expert = {};
  if (source == nullptr) return;
  if (source->gate.data != nullptr)
    expert.gate = std::make_unique<ReferenceMatrix>(std::span(&source->gate, 1), format_);
  expert.up = std::make_unique<ReferenceMatrix>(std::span(&source->up, 1), format_);
  expert.down = std::make_unique<ReferenceMatrix>(std::span(&source->down, 1), format_);
  bytes_ += (expert.gate != nullptr ? expert.gate->bytes() : 0) + expert.up->bytes() + expert.down->bytes();
}

}  // namespace moe
