// Which tensor of a checkpoint holds what a spec needs, by names alone: what reading weights and checking an index
// without them share. Strict both ways: what is needed must be there, and what is there must be needed or be ignored by
// one of the family's named rules.
#ifndef MOE_LOADERS_NAME_MATCHER_H_
#define MOE_LOADERS_NAME_MATCHER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loaders/model_spec.h"
#include "loaders/tensor_rules.h"

namespace moe {

// The rules of a canonical name: its own where it has some, else those of its pattern.
// REQUIRES: the family declares one for every tensor that its specs need.
const std::vector<TensorRule>& RulesOf(const TensorRules& rules, const TensorNeed& need, const CanonicalName& name);

// "a or b": the names under which a checkpoint may have it.
std::string CheckpointNames(const std::vector<TensorRule>& rules, const CanonicalName& name);

// How many there are of something, and the first few of them.
struct SomeNames {
  static constexpr size_t kShown = 3;
  int64_t count = 0;
  std::vector<std::string> first;
  void Add(const std::string& name);
};

class NameMatcher {
 public:
  // What the names point to and `rules` must outlive it; no name comes twice.
  NameMatcher(const TensorRules& rules, std::vector<std::string_view> names);

  struct Match {
    CanonicalName name;
    const std::vector<TensorRule>* rules = nullptr;  // the alternatives
    const TensorRule* rule = nullptr;                // the first of them whose tensor is there
    int64_t tensor = -1;                             // its index; -1: there is none
  };
  // Marks the tensor as used. One that is missing is noted, unless the rules allow that.
  Match Find(const TensorNeed& need);

  bool used(int64_t tensor) const { return used_[static_cast<size_t>(tensor)]; }
  void set_used(int64_t tensor, bool used) { used_[static_cast<size_t>(tensor)] = used; }

  // The unused tensor that would be the head if it were not tied; -1 without one.
  int64_t SpareHead() const;

  const SomeNames& missing() const { return missing_; }
  // Layers that have no selection bias, as the rules allow.
  const std::vector<int64_t>& without_select_bias() const { return without_select_bias_; }

  // Call when everything that is needed has been looked for.
  struct Unused {
    SomeNames unknown;                       // quoted
    std::map<std::string, int64_t> ignored;  // reason → how many
  };
  Unused SortUnused() const;
  // The first unused tensor, by name, that only a quantised checkpoint has; empty without one.
  std::string FirstQuantized() const;

 private:
  int64_t IndexOf(const std::string& name) const;
  const IgnoreRule* IgnoredBy(std::string_view name) const;

  const TensorRules& rules_;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, int64_t> index_;
  std::vector<bool> used_;
  SomeNames missing_;
  std::vector<int64_t> without_select_bias_;
};

}  // namespace moe

#endif  // MOE_LOADERS_NAME_MATCHER_H_
