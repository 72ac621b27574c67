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

MixerRopes RopesOf(const MixerSpec& mixer) {
  const auto pointer = [](const std::optional<RopeSpec>& rope) { return rope ? &*rope : nullptr; };
  if (const auto* attention = std::get_if<AttentionSpec>(&mixer)) return {.own = pointer(attention->rope)};
  if (const auto* lightning = std::get_if<LightningSpec>(&mixer)) return {.own = pointer(lightning->rope)};
  if (const auto* compressed = std::get_if<CompressedAttentionSpec>(&mixer)) return {.own = &compressed->rope};
  if (const auto* mla = std::get_if<MlaSpec>(&mixer)) {
    return {.own = pointer(mla->rope), .indexer = mla->indexer ? pointer(mla->indexer->rope) : nullptr};
  }
  return {};
}

int64_t ModelSpec::LongContextBorder() const {
  for (const LayerSpec& layer : layers) {
    const MixerRopes ropes = RopesOf(layer.mixer);
    for (const RopeSpec* rope : {ropes.own, ropes.indexer}) {
      if (rope != nullptr && rope->original_positions > 0) return rope->original_positions;
    }
  }
  return 0;
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
