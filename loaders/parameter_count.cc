#include "loaders/parameter_count.h"

#include <map>
#include <variant>

#include "loaders/tensor_rules.h"

namespace moe {
namespace {

// Chosen and all experts of a kind in a layer: those of the ffn, or those of the attention's heads.
struct Choice {
  int64_t chosen = 0;
  int64_t experts = 1;
};

Choice ChoiceOf(const LayerSpec& layer, bool of_attention) {
  if (of_attention) {
    const auto* attn = std::get_if<AttentionSpec>(&layer.mixer);
    if (attn == nullptr || !attn->head_experts) return {};
    return {attn->head_experts->top_k, attn->head_experts->num_experts};
  }
  const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
  if (moe == nullptr) return {};
  return {moe->top_k < moe->num_experts ? moe->top_k : moe->num_experts, moe->num_experts};
}

bool Has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

ParameterCount CountParameters(const ModelSpec& spec) {
  ParameterCount count;
  int64_t looked_up = 0;
  std::map<std::pair<int64_t, bool>, int64_t> routed;  // (layer, of attention) → parameters of its experts
  ForEachRequiredTensor(spec, [&](const TensorNeed& need) {
    const int64_t size = need.rows * need.cols;
    count.total += size;
    if (need.name == "embed") count.embedding = size;
    if (need.name == "lm_head") count.head = size;
    const CanonicalName name = ParseCanonicalName(need.name);
    if (Has(name.pattern, ".experts.{e}.")) {
      routed[{name.layer, Has(name.pattern, ".attn.")}] += size;
    } else if (Has(name.pattern, ".table")) {
      looked_up += size;
    }
  });
  count.active = count.total - looked_up;
  for (const auto& [where, size] : routed) {
    const Choice choice = ChoiceOf(spec.layers[static_cast<size_t>(where.first)], where.second);
    count.active -= size / choice.experts * (choice.experts - choice.chosen);
  }
  return count;
}

}  // namespace moe
