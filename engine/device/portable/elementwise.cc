#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/portable/portable_backend.h"
#include "engine/device/reference/reference_math.h"

namespace moe {
namespace {

// log sigmoid(z), finite where the sigmoid itself would be 0.
float LogSigmoid(float z) {
  return std::min(z, 0.0f) - std::log1p(std::exp(-std::fabs(z)));
}

}  // namespace

void PortableBackend::Activate(const ActivateOp& op) {
  constexpr int64_t kValues = 1024;  // of one task
  ForTasks((op.count + kValues - 1) / kValues, 16.0 * static_cast<double>(op.count), [&](int64_t task) {
    const int64_t end = std::min(op.count, (task + 1) * kValues);
    for (int64_t i = task * kValues; i < end; ++i) op.x[i] = reference::PlainActivation(op.activation, op.x[i]);
  });
}

void PortableBackend::SinkWeights(const SinkWeightsOp& op) {
  const int64_t count = op.top_k + op.sinks;
  ForTasks(op.rows, 40.0 * static_cast<double>(op.rows * count), [&](int64_t r) {
    std::vector<float> scores;
    for (int64_t k = 0; k < op.top_k; ++k) {
      scores.push_back(LogSigmoid(op.logits[r * op.num_experts + op.ids[r * op.top_k + k]]));
    }
    for (int64_t s = 0; s < op.sinks; ++s) scores.push_back(LogSigmoid(op.sink_logits[r * op.sinks + s]));
    const float max = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float& score : scores) {
      score = std::exp(score - max);
      sum += score;
    }
    for (int64_t i = 0; i < count; ++i) {
      const float weight = op.scale * (scores[static_cast<size_t>(i)] / sum);
      (i < op.top_k ? op.weights[r * op.top_k + i] : op.sink_weights[(i - op.top_k) * op.rows + r]) = weight;
    }
  });
}

void PortableBackend::Affine(const AffineOp& op) {
  const auto affine = [](float x, const float* bias, const float* scale, int64_t i) {
    if (bias != nullptr) x += bias[i];
    return scale == nullptr ? x : x * scale[i];
  };
  ForTasks(op.rows, 2.0 * static_cast<double>(op.rows * op.dim), [&](int64_t r) {
    float* dst = op.dst + r * op.dim;
    const float* src = op.src == nullptr ? nullptr : op.src + r * op.dim;
    for (int64_t i = 0; i < op.dim; ++i) {
      dst[i] = affine(dst[i], op.dst_bias, op.dst_scale, i);
      if (src != nullptr) dst[i] += affine(src[i], op.src_bias, op.src_scale, i);
    }
  });
}

}  // namespace moe
