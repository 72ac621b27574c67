#include "loaders/tensor_plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "loaders/name_matcher.h"

namespace moe {
namespace {

class Planner {
 public:
  Planner(const TensorRules& rules, const std::function<void(const std::string&)>& each) : rules_(rules), each_(each) {}

  void Add(const TensorNeed& need) {
    const CanonicalName name = ParseCanonicalName(need.name);
    const TensorRule& rule = RulesOf(rules_, need, name).front();
    PlannedTensors& group = GroupOf(need, rule, name);
    if (group.pattern.find("{e}") != std::string::npos) group.experts = std::max(group.experts, name.expert + 1);
    const bool of_layer = group.pattern.find("{l") != std::string::npos;
    if (of_layer && (group.layers.empty() || group.layers.back() != name.layer)) group.layers.push_back(name.layer);
    // One tensor may hold several: gate and up, all experts.
    const auto [at, added] = seen_.insert(FillPattern(rule.checkpoint, name.layer, name.expert));
    if (!added) return;
    int64_t size = 1;
    for (const int64_t dim : group.shape) size *= dim;
    ++group.count;
    ++plan_.count;
    group.parameters += size;
    plan_.parameters += size;
    if (each_) each_(*at);
  }

  TensorPlan Finish() { return std::move(plan_); }

 private:
  // A rule for one layer's tensor may have the layer's number in its name.
  static std::string PatternOf(const TensorRule& rule, const CanonicalName& name) {
    if (rule.checkpoint.find('{') != std::string::npos) return rule.checkpoint;
    const CanonicalName written = ParseCanonicalName(rule.checkpoint);
    return written.layer >= 0 && written.layer == name.layer ? written.pattern : rule.checkpoint;
  }

  PlannedTensors& GroupOf(const TensorNeed& need, const TensorRule& rule, const CanonicalName& name) {
    // Most needs are for the tensors of the next expert or layer.
    Last& last = last_of_[&rule];
    if (last.rows == need.rows && last.cols == need.cols) return plan_.tensors[last.group];
    std::vector<int64_t> shape = StoredShape(need, rule.layout);
    const std::string pattern = PatternOf(rule, name);
    const auto [at, added] = group_of_.try_emplace({pattern, shape}, plan_.tensors.size());
    if (added) {
      PlannedTensors& group = plan_.tensors.emplace_back();
      group.pattern = pattern;
      group.shape = std::move(shape);
    }
    PlannedTensors& group = plan_.tensors[at->second];
    if (std::find(group.holds.begin(), group.holds.end(), name.pattern) == group.holds.end()) {
      group.holds.push_back(name.pattern);
    }
    last = {need.rows, need.cols, at->second};
    return group;
  }

  struct Last {
    int64_t rows = -1;
    int64_t cols = -1;
    size_t group = 0;
  };
  const TensorRules& rules_;
  const std::function<void(const std::string&)>& each_;
  TensorPlan plan_;
  std::map<std::pair<std::string, std::vector<int64_t>>, size_t> group_of_;
  std::unordered_map<const TensorRule*, Last> last_of_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

TensorPlan PlanTensors(const ModelSpec& spec, const TensorRules& rules,
                       const std::function<void(const std::string&)>& each) {
  Planner planner(rules, each);
  ForEachRequiredTensor(spec, [&planner](const TensorNeed& need) { planner.Add(need); });
  return planner.Finish();
}

}  // namespace moe
