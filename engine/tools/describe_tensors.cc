// `moe inspect --tensors`.
#include <algorithm>

#include "engine/tools/describe_model.h"
#include "loaders/tensor_plan.h"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

std::string Joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  return out;
}

std::string ShapeOf(const PlannedTensors& tensors) {
  std::string out;
  for (const int64_t dim : tensors.shape) out += Cat(out.empty() ? "" : ", ", dim);
  return Cat("[", out, "]");
}

// "layers 0-2, 4, experts 0-127".
std::string Where(const PlannedTensors& tensors) {
  std::string out;
  if (!tensors.layers.empty()) out += Cat("  layers ", Ranges(tensors.layers));
  if (tensors.experts > 0) out += Cat(out.empty() ? "  " : ", ", "experts 0-", tensors.experts - 1);
  return out;
}

std::string Padded(const std::string& text, size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

}  // namespace

Json DescribeTensorsJson(const LoadedModel& model) {
  const TensorPlan plan = PlanTensors(model.spec, model.rules);
  Json out;
  out["architecture"] = model.spec.architecture;
  out["tensors"] = plan.count;
  out["parameters"] = plan.parameters;
  out["patterns"] = Json::array();
  for (const PlannedTensors& tensors : plan.tensors) {
    out["patterns"].push_back({{"name", tensors.pattern},
                               {"shape", tensors.shape},
                               {"holds", tensors.holds},
                               {"layers", tensors.layers},
                               {"experts", tensors.experts},
                               {"count", tensors.count}});
  }
  return out;
}

std::string DescribeTensorsText(const LoadedModel& model) {
  const TensorPlan plan = PlanTensors(model.spec, model.rules);
  size_t name_width = 0;
  size_t shape_width = 0;
  for (const PlannedTensors& tensors : plan.tensors) {
    name_width = std::max(name_width, tensors.pattern.size());
    shape_width = std::max(shape_width, ShapeOf(tensors).size());
  }
  std::string out;
  for (const PlannedTensors& tensors : plan.tensors) {
    out += Cat(Padded(tensors.pattern, name_width), "  ", Padded(ShapeOf(tensors), shape_width), "  = ",
               Joined(tensors.holds), Where(tensors), "\n");
  }
  return out + Cat(plan.count, " tensors, ", plan.parameters, " parameters\n");
}

}  // namespace moe
