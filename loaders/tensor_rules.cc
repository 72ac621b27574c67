#include "loaders/tensor_rules.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "parallel/base/check.h"

namespace moe {
namespace {

// -1 if it is not a number of at most nine digits.
int64_t ParseNumber(std::string_view text) {
  if (text.empty() || text.size() > 9) return -1;
  int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    number = 10 * number + (c - '0');
  }
  return number;
}

// Rows of the stored out dimension.
int64_t StoredRows(const TensorNeed& need, const StoredLayout& layout) {
  if (layout.group_rows > 0) return need.rows / layout.group_rows * layout.group_total;
  return layout.row_total > 0 ? layout.row_total : need.rows * layout.parts;
}

}  // namespace

StoredLayout StoredLayout::Taps(int64_t count) const {
  StoredLayout layout = *this;
  layout.taps = count;
  return layout;
}
StoredLayout StoredLayout::Transposed() const {
  StoredLayout layout = *this;
  layout.transposed = true;
  return layout;
}
StoredLayout StoredLayout::Part(int index, int count) const {
  StoredLayout layout = *this;
  layout.part = index;
  layout.parts = count;
  return layout;
}
StoredLayout StoredLayout::Interleaved() const {
  StoredLayout layout = *this;
  layout.interleaved = true;
  return layout;
}
StoredLayout StoredLayout::Flat() const {
  StoredLayout layout = *this;
  layout.flat_experts = true;
  return layout;
}
StoredLayout StoredLayout::At(int64_t which) const {
  StoredLayout layout = *this;
  layout.index = which;
  return layout;
}
StoredLayout Plain() {
  return {};
}
StoredLayout Stacked(int64_t experts) {
  return {.experts = experts};
}
StoredLayout RowSlice(int64_t begin, int64_t total) {
  return {.row_begin = begin, .row_total = total};
}

StoredLayout HeadSlice(int64_t begin, int64_t rows, int64_t total) {
  return {.group_rows = rows, .group_begin = begin, .group_total = total};
}

std::vector<int64_t> StoredShape(const TensorNeed& need, const StoredLayout& layout) {
  std::vector<int64_t> shape;
  const int64_t rows = StoredRows(need, layout);
  if (need.vector) {
    shape = {rows};
  } else if (layout.transposed) {
    shape = {need.cols, rows};
  } else {
    shape = {rows, need.cols};
  }
  if (layout.taps > 0) {
    shape.back() /= layout.taps;
    shape.push_back(layout.taps);
  }
  if (layout.experts > 0 && layout.flat_experts) {
    shape[0] *= layout.experts;
  } else if (layout.experts > 0) {
    shape.insert(shape.begin(), layout.experts);
  }
  return shape;
}

StoredView ViewOf(const TensorNeed& need, const StoredLayout& layout, int64_t expert) {
  const int64_t rows = StoredRows(need, layout);
  StoredView view;
  // Distance between neighbours in the stored out dimension, and along the columns.
  const int64_t out_stride = layout.transposed ? 1 : need.cols;
  view.col_stride = layout.transposed ? rows : 1;
  view.row_stride = layout.interleaved ? out_stride * layout.parts : out_stride;
  int64_t first_row = layout.row_begin + layout.group_begin;
  view.group_rows = layout.group_rows;
  view.group_stride = layout.group_total * out_stride;
  if (layout.parts > 1) first_row += layout.interleaved ? layout.part : layout.part * need.rows;
  view.offset = first_row * out_stride;
  if (layout.experts > 0) view.offset += (layout.index >= 0 ? layout.index : expert) * rows * need.cols;
  return view;
}

CanonicalName ParseCanonicalName(const std::string& name) {
  CanonicalName parsed;
  parsed.pattern.reserve(name.size() + 4);
  size_t begin = 0;
  while (begin <= name.size()) {
    size_t end = name.find('.', begin);
    if (end == std::string::npos) end = name.size();
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    if (begin > 0) parsed.pattern += '.';
    if (const int64_t number = ParseNumber(part); number < 0) {
      parsed.pattern += part;
    } else if (parsed.layer < 0) {
      parsed.layer = number;
      parsed.pattern += "{l}";
    } else {
      parsed.expert = number;
      parsed.pattern += "{e}";
    }
    begin = end + 1;
  }
  return parsed;
}

std::string FillPattern(const std::string& pattern, int64_t layer, int64_t expert) {
  const std::pair<std::string_view, int64_t> values[] = {
      {"{l}", layer}, {"{e}", expert}, {"{l/2}", layer / 2}, {"{l%2}", layer % 2}};
  std::string name;
  name.reserve(pattern.size() + 8);
  size_t begin = 0;
  while (begin < pattern.size()) {
    const size_t brace = std::min(pattern.find('{', begin), pattern.size());
    name.append(pattern, begin, brace - begin);
    begin = brace;
    for (const auto& [text, value] : values) {
      if (pattern.compare(begin, text.size(), text) != 0) continue;
      name += std::to_string(value);
      begin += text.size();
      break;
    }
    if (begin == brace && begin < pattern.size()) name += pattern[begin++];
  }
  return name;
}

bool MatchesGlob(const std::string& pattern, const std::string& text) {
  // The last '*' seen can always take one character more, so remembering only that one is enough.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void TensorRules::Add(std::string canonical, std::string checkpoint, StoredLayout layout) {
  MOE_CHECK(layout.part >= 0 && layout.part < layout.parts) << canonical;
  std::vector<TensorRule>& rules = rules_[canonical];
  rules.push_back({std::move(canonical), std::move(checkpoint), layout});
}

void TensorRules::Ignore(std::string pattern, std::string reason) {
  ignored_.push_back({std::move(pattern), std::move(reason)});
}

void TensorRules::Imply(std::string checkpoint, std::vector<int64_t> values, std::string reason) {
  Ignore(checkpoint, reason);
  implied_.push_back({std::move(checkpoint), std::move(values), std::move(reason)});
}

void TensorRules::AddAliases(const std::vector<std::pair<std::string, std::string>>& prefixes) {
  const auto aliases = [&prefixes](const std::string& name) {
    std::vector<std::string> others;
    for (const auto& [from, to] : prefixes) {
      if (name.starts_with(from)) others.push_back(to + name.substr(from.size()));
    }
    return others;
  };
  for (auto& [canonical, rules] : rules_) {
    const size_t count = rules.size();
    for (size_t i = 0; i < count; ++i) {
      for (const std::string& other : aliases(rules[i].checkpoint)) {
        rules.push_back({canonical, other, rules[i].layout});
      }
    }
  }
  const size_t count = ignored_.size();
  for (size_t i = 0; i < count; ++i) {
    for (const std::string& other : aliases(ignored_[i].pattern)) ignored_.push_back({other, ignored_[i].reason});
  }
  const size_t implied = implied_.size();
  for (size_t i = 0; i < implied; ++i) {
    for (const std::string& other : aliases(implied_[i].checkpoint)) {
      implied_.push_back({other, implied_[i].values, implied_[i].reason});
    }
  }
}

void TensorRules::AddExperts(const std::string& out, const std::string& in, const std::string& gate,
                             const std::string& up, const std::string& down) {
  AddMlp(out + "{e}.", in + "{e}.", gate, up, down);
}

void TensorRules::AddFusedExperts(const std::string& out, const std::string& gate_up, const std::string& down,
                                  int64_t experts) {
  Add(out + "{e}.gate", gate_up, Stacked(experts).Part(0, 2));
  Add(out + "{e}.up", gate_up, Stacked(experts).Part(1, 2));
  Add(out + "{e}.down", down, Stacked(experts));
}

void TensorRules::AddStackedExperts(const std::string& out, const std::string& up, const std::string& down,
                                    int64_t experts) {
  Add(out + "{e}.up", up, Stacked(experts));
  Add(out + "{e}.down", down, Stacked(experts));
}

void TensorRules::AddMlp(const std::string& out, const std::string& in, const std::string& gate, const std::string& up,
                         const std::string& down) {
  if (!gate.empty()) AddLinear(out + "gate", in + gate);
  AddLinear(out + "up", in + up);
  AddLinear(out + "down", in + down);
}

void TensorRules::AddLinear(const std::string& out, const std::string& in) {
  Add(out, in + ".weight");
  Add(out + ".bias", in + ".bias");
}

void TensorRules::ApplySettlement(const StoredShapes& shape_of, ModelSpec* spec) const {
  if (!settlement_) return;
  const auto stored = [&](const std::string& canonical) -> const std::vector<int64_t>* {
    const CanonicalName name = ParseCanonicalName(canonical);
    const std::vector<TensorRule>* rules = Find(canonical);
    if (rules == nullptr) rules = Find(name.pattern);
    if (rules == nullptr) return nullptr;
    for (const TensorRule& rule : *rules) {
      const std::vector<int64_t>* shape = shape_of(FillPattern(rule.checkpoint, name.layer, name.expert));
      if (shape != nullptr) return shape;
    }
    return nullptr;
  };
  settlement_(stored, spec);
}

void TensorRules::IgnoreDraftLayers(const std::string& prefix, int64_t num_layers, int64_t declared) {
  for (int64_t layer = num_layers; layer < num_layers + declared; ++layer) {
    Ignore(Cat(prefix, layer, ".*"), "multi-token prediction");
  }
}

const std::vector<TensorRule>* TensorRules::Find(const std::string& canonical_pattern) const {
  const auto it = rules_.find(canonical_pattern);
  return it == rules_.end() ? nullptr : &it->second;
}

}  // namespace moe
