#include "tests/loaders/planned_checkpoint.h"

#include <set>

#include "loaders/weight_store.h"

namespace moe::testing {

std::vector<TinyTensor> PlannedTensors(const ModelDescription& model) {
  std::vector<TinyTensor> tensors;
  std::set<std::string> names;
  ForEachRequiredTensor(model.spec, [&](const TensorNeed& need) {
    const CanonicalName canonical = ParseCanonicalName(need.name);
    const std::vector<TensorRule>* rules = model.rules.Find(need.name);
    if (rules == nullptr) rules = model.rules.Find(canonical.pattern);
    const TensorRule& rule = rules->front();
    TinyTensor tensor{.name = FillPattern(rule.checkpoint, canonical.layer, canonical.expert),
                      .shape = StoredShape(need, rule.layout),
                      .data = {}};
    if (!names.insert(tensor.name).second) return;
    if (need.below > 0) tensor.dtype = "I64";
    for (int64_t i = 0; need.below > 0 && i < need.rows * need.cols; ++i) {
      const int64_t value = i % need.below;
      tensor.data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    tensors.push_back(std::move(tensor));
  });
  return tensors;
}

Status OpenTensors(const ModelDescription& model, const std::vector<TinyTensor>& tensors, ModelSpec* spec) {
  *spec = model.spec;
  const auto files = InMemory({{"model.safetensors", Pack(LayOut(tensors))}});
  return OpenWeightStore(*files, spec, model.rules).status();
}

}  // namespace moe::testing
