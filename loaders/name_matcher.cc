#include "loaders/name_matcher.h"

#include <utility>

#include "loaders/json_text.h"
#include "loaders/quantized_names.h"
#include "parallel/base/check.h"

namespace moe {

const std::vector<TensorRule>& RulesOf(const TensorRules& rules, const TensorNeed& need, const CanonicalName& name) {
  // A rule for one layer's tensor stands in for those for all layers.
  const std::vector<TensorRule>* found = rules.Find(need.name);
  if (found == nullptr) found = rules.Find(name.pattern);
  MOE_CHECK(found != nullptr) << "no rule for the tensor " << name.pattern;
  return *found;
}

std::string CheckpointNames(const std::vector<TensorRule>& rules, const CanonicalName& name) {
  std::string text;
  for (const TensorRule& rule : rules) {
    text += (text.empty() ? "" : " or ") + FillPattern(rule.checkpoint, name.layer, name.expert);
  }
  return text;
}

void SomeNames::Add(const std::string& name) {
  if (first.size() < kShown) first.push_back(name);
  ++count;
}

NameMatcher::NameMatcher(const TensorRules& rules, std::vector<std::string_view> names)
    : rules_(rules), names_(std::move(names)), used_(names_.size(), false) {
  index_.reserve(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) index_.emplace(names_[i], static_cast<int64_t>(i));
}

int64_t NameMatcher::IndexOf(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? -1 : it->second;
}

NameMatcher::Match NameMatcher::Find(const TensorNeed& need) {
  Match match;
  match.name = ParseCanonicalName(need.name);
  match.rules = &RulesOf(rules_, need, match.name);
  for (const TensorRule& rule : *match.rules) {
    match.tensor = IndexOf(FillPattern(rule.checkpoint, match.name.layer, match.name.expert));
    if (match.tensor < 0) continue;
    match.rule = &rule;
    set_used(match.tensor, true);
    return match;
  }
  if (rules_.allow_no_select_bias() && match.name.pattern == "layers.{l}.moe.router.select_bias") {
    without_select_bias_.push_back(match.name.layer);
  } else {
    missing_.Add(CheckpointNames(*match.rules, match.name));
  }
  return match;
}

int64_t NameMatcher::SpareHead() const {
  const std::vector<TensorRule>* rules = rules_.Find("lm_head");
  if (rules == nullptr) return -1;
  for (const TensorRule& rule : *rules) {
    const int64_t found = IndexOf(rule.checkpoint);
    if (found >= 0 && !used(found)) return found;
  }
  return -1;
}

const IgnoreRule* NameMatcher::IgnoredBy(std::string_view name) const {
  for (const IgnoreRule& rule : rules_.ignored()) {
    if (MatchesGlob(rule.pattern, std::string(name))) return &rule;
  }
  return nullptr;
}

NameMatcher::Unused NameMatcher::SortUnused() const {
  Unused unused;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (used_[i]) continue;
    if (const IgnoreRule* rule = IgnoredBy(names_[i])) {
      ++unused.ignored[rule->reason];
    } else {
      unused.unknown.Add(Quoted(std::string(names_[i])));
    }
  }
  return unused;
}

std::string NameMatcher::FirstQuantized() const {
  std::string_view first;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (used_[i] || !IsQuantizedName(names_[i]) || IgnoredBy(names_[i]) != nullptr) continue;
    if (first.empty() || names_[i] < first) first = names_[i];
  }
  return std::string(first);
}

}  // namespace moe
