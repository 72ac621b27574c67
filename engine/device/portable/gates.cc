#include <algorithm>
#include <cmath>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {

using reference::LoadAct;
using reference::Sigmoid;
using reference::Softplus;
using reference::StoreAct;

void PortableBackend::Gate(const GateOp& op) {
  if (op.kind == AttentionGate::kNone) return;
  const DType act = act_dtype();
  const int64_t width = op.heads * op.head_dim;
  const auto row_bytes = width * static_cast<int64_t>(DTypeSize(act));
  const bool per_element = PerElement(op.kind);
  const bool softplus = op.kind == AttentionGate::kHeadSoftplus || op.kind == AttentionGate::kElementSoftplus;
  const auto factor_of = [softplus](float value) { return softplus ? Softplus(value) : Sigmoid(value); };
  ForTasks(op.rows, static_cast<double>(op.rows * width) * (per_element ? 8 : 2), [&](int64_t r) {
    const float* gate = op.gate + r * op.gate_stride;
    std::byte* x = op.act + r * row_bytes;
    for (int64_t h = 0; h < op.heads; ++h) {
      const float bias = op.head_bias != nullptr ? op.head_bias[h] : 0.0f;
      float factor = 0;
      if (!per_element) factor = factor_of(gate[h] + bias);
      for (int64_t i = h * op.head_dim; i < (h + 1) * op.head_dim; ++i) {
        if (per_element) factor = factor_of(gate[i] + bias);
        StoreAct(act, x, i, LoadAct(act, x, i) * factor);
      }
    }
  });
}

void PortableBackend::StreamGate(const StreamGateOp& op) {
  const float root = std::sqrt(static_cast<float>(op.dim));
  ForTasks(op.rows * op.streams, static_cast<double>(op.rows * op.streams * op.dim) * 2, [&](int64_t task) {
    const float* key = op.key + task * op.dim;
    const float* query = op.query + task * op.dim;
    const float* value = op.value + task / op.streams * op.dim;
    float* out = op.out + task * op.dim;
    float dot = 0;
    for (int64_t d = 0; d < op.dim; ++d) dot += key[d] * query[d];
    dot /= root;
    const float sign = dot > 0 ? 1.0f : dot < 0 ? -1.0f : 0.0f;
    const float gate = reference::Sigmoid(std::sqrt(std::max(std::abs(dot), 1e-6f)) * sign);
    for (int64_t d = 0; d < op.dim; ++d) out[d] = gate * value[d];
  });
}

}  // namespace moe
