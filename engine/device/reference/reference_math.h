// Small scalar formulas, written to be read; shared by the reference backend's operations and by tests.
#ifndef MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MATH_H_
#define MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MATH_H_

#include <cmath>
#include <cstdint>

#include "loaders/model_spec.h"
#include "parallel/base/dtype.h"

namespace moe::reference {

inline float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
inline float Silu(float x) {
  return x * Sigmoid(x);
}
// log(1 + e^x) without overflow.
inline float Softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// `limit` and `alpha`: MlpSpec's.
inline float GatedActivation(Activation activation, float limit, float alpha, float gate, float up) {
  if (activation == Activation::kSwigluStep) {
    return std::fmin(Silu(gate), limit) * std::fmax(-limit, std::fmin(limit, up));
  }
  if (limit > 0) {
    gate = std::fmin(limit, gate);
    up = std::fmax(-limit, std::fmin(limit, up));
  }
  switch (activation) {
    case Activation::kSwigluOai:
      return (up + 1.0f) * gate * Sigmoid(alpha * gate);
    case Activation::kSwigluStep:
    case Activation::kSilu:
      return Silu(gate) * up;
    case Activation::kGeluTanh: {
      const float inner = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
      return 0.5f * gate * (1.0f + std::tanh(inner)) * up;
    }
    case Activation::kGeluErf:
      return 0.5f * gate * (1.0f + std::erf(gate * 0.7071067811865476f)) * up;
    case Activation::kRelu2: {
      const float g = gate > 0 ? gate : 0;
      return g * g * up;
    }
  }
  return 0;
}

inline float PlainActivation(Activation activation, float x) {
  return GatedActivation(activation, 0.0f, 0.0f, x, 1.0f);
}

// Reads or writes element i of a row in `act` (kBF16 or kF32).
inline float LoadAct(DType act, const std::byte* row, int64_t i) {
  return LoadFloat(act, row + i * static_cast<int64_t>(DTypeSize(act)));
}
inline void StoreAct(DType act, std::byte* row, int64_t i, float value) {
  if (act == DType::kF32) {
    std::memcpy(row + i * 4, &value, 4);
  } else {
    const bf16_t bits = FloatToBf16(value);
    std::memcpy(row + i * 2, &bits, 2);
  }
}

// out may equal x. weight, bias: [n] or null.
void NormRow(const NormSpec& spec, const float* x, int64_t n, const float* weight, const float* bias, float* out);

// cos and sin [rotary_dim / 2] of a position; long_context: of a sequence that is (RopeSpec::original_positions).
void RotationAt(const RopeSpec& rope, int64_t position, float* cos, float* sin, bool long_context = false);

// Rotates the first 2·half dims of one head in place; cos, sin: [half].
void RotateHead(RopeSpec::Layout layout, const float* cos, const float* sin, int64_t half, float* head);

}  // namespace moe::reference

#endif  // MOE_ENGINE_DEVICE_REFERENCE_REFERENCE_MATH_H_
