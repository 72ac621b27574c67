#include "loaders/model_spec.h"

#include <algorithm>
#include <cmath>

namespace moe {

std::vector<int64_t> ModelSpec::MoeLayers() const {
  std::vector<int64_t> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (std::holds_alternative<MoeSpec>(layers[i].ffn)) result.push_back(static_cast<int64_t>(i));
  }
  return result;
}

bool ModelSpec::HasRecurrentState() const {
  return std::any_of(layers.begin(), layers.end(),
                     [this](const LayerSpec& layer) { return CacheOf(layer, hidden_size).state > 0; });
}

int64_t ModelSpec::MaxTopK() const {
  int64_t result = 0;
  for (const LayerSpec& layer : layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) result = std::max(result, moe->top_k);
  }
  return result;
}

int64_t ModelSpec::MaxExperts() const {
  int64_t result = 0;
  for (const LayerSpec& layer : layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) result = std::max(result, moe->num_choices());
  }
  return result;
}

float PositionScaleAt(const PositionScale& scale, int64_t position) {
  const double at = static_cast<double>(position + scale.offset) / scale.period;
  switch (scale.kind) {
    case PositionScale::Kind::kNone:
      return 1.0f;
    case PositionScale::Kind::kLog:
      return static_cast<float>(1.0 + scale.beta * std::log(1.0 + std::floor(at)));
    case PositionScale::Kind::kLogAbove:
      return static_cast<float>(1.0 + scale.beta * std::log(std::max(1.0, at)));
    case PositionScale::Kind::kPower:
      return static_cast<float>(std::pow(1.0 + at, scale.beta));
  }
  return 1.0f;
}

}  // namespace moe
