// Filters that take sequences apart and put them in order.
#include <algorithm>
#include <numeric>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attribute_path.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/strings.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

Value Generator(Runtime& rt, std::vector<Value> items) {
  return rt.NewList(std::move(items), ListKind::kGenerator);
}

Value DoFirst(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "first", args, {});
  if (self.IsString() && !self.text().empty()) return rt.Slice(self, 0, DecodeAt(self.text(), 0).bytes);
  if (self.IsList() && !self.list().items.empty()) {
    Value first = self.list().items.front();
    // Taking one item off a generator leaves the rest in it.
    if (self.list().kind == ListKind::kGenerator) self.list().items.erase(self.list().items.begin());
    return first;
  }
  const std::vector<Value> items = Iterate(rt, self);
  return items.empty() ? rt.UndefinedBecause("No first item, sequence was empty.") : items.front();
}

Value DoLast(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "last", args, {});
  if (self.IsString() && !self.text().empty()) {
    const size_t size = self.text().size();
    return rt.Slice(self, size - DecodeBefore(self.text(), size).bytes, size);
  }
  if (self.IsList() && self.list().kind == ListKind::kGenerator) return rt.Fail("'generator' object is not reversible");
  const std::vector<Value> items = Iterate(rt, self);
  return items.empty() ? rt.UndefinedBecause("No last item, sequence was empty.") : items.back();
}

Value DoList(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "list", args, {});
  return rt.NewList(Iterate(rt, self), ListKind::kList, self.trusted());
}

Value DoReverse(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "reverse", args, {});
  std::vector<Value> items = Iterate(rt, self);
  std::reverse(items.begin(), items.end());
  return self.IsString() ? JoinStrings(rt, rt.View("", true), items) : Generator(rt, std::move(items));
}

// Indices of `keys` in their order; stable, also when reversed.
std::vector<size_t> SortedOrder(Runtime& rt, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return rt.ok() && (reverse ? Order(rt, keys[b], keys[a]) : Order(rt, keys[a], keys[b])) < 0;
  });
  return order;
}

std::vector<Value> Pick(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> picked;
  picked.reserve(order.size());
  for (const size_t i : order) picked.push_back(items[i]);
  return picked;
}

Value DoSort(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  // "age,name": a list of keys, compared one after the other.
  std::vector<AttributePath> paths;
  const Value attribute = a.ValueOr(2, Value::None());
  if (attribute.IsString()) {
    for (size_t begin = 0; begin <= attribute.text().size() && rt.Step();) {
      const size_t end = std::min(attribute.text().find(',', begin), attribute.text().size());
      paths.emplace_back(rt, rt.Slice(attribute, begin, end));
      begin = end + 1;
    }
  } else {
    paths.emplace_back(rt, attribute);
  }
  const std::vector<Value> items = Iterate(rt, self);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.Get(rt, item);
      key.push_back(a.Bool(1, false) ? part : IgnoreCase(rt, part));
    }
    keys.push_back(key.size() == 1 ? key[0] : rt.NewList(std::move(key)));
    if (!rt.ok()) return Value();
  }
  return rt.NewList(Pick(items, SortedOrder(rt, keys, a.Bool(0, false))), ListKind::kList, self.trusted());
}

Value DoDictSort(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = a.Text(1, "key");
  if (by != "key" && by != "value") return rt.Fail("You can only sort by either \"key\" or \"value\"");
  if (self.IsUndefined()) return rt.FailUndefined(self);
  if (!self.IsDict()) return rt.Fail("dictsort needs a mapping, not ", TypeName(self));
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : self.dict().items) {
    if (!rt.ok()) return Value();
    pairs.push_back(rt.NewTuple({key, value}));
    const Value& sorted_by = by == "key" ? key : value;
    keys.push_back(a.Bool(0, false) ? sorted_by : IgnoreCase(rt, sorted_by));
  }
  return rt.NewList(Pick(pairs, SortedOrder(rt, keys, a.Bool(2, false))), ListKind::kList, self.trusted());
}

Value DoGroupBy(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(rt, a[0]);
  const Value absent = a.ValueOr(1, Value::None());
  const auto real_key = [&](const Value& item) { return path.Get(rt, item, absent.IsNone() ? nullptr : &absent); };
  const std::vector<Value> items = Iterate(rt, self);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(a.Bool(2, false) ? real_key(item) : IgnoreCase(rt, real_key(item)));
    if (!rt.ok()) return Value();
  }
  std::vector<Value> groups, members;
  const std::vector<size_t> order = SortedOrder(rt, keys, false);
  for (size_t i = 0; i < order.size() && rt.ok(); ++i) {
    members.push_back(items[order[i]]);
    if (i + 1 < order.size() && Equal(rt, keys[order[i]], keys[order[i + 1]])) continue;
    const Value group = rt.NewTuple({real_key(members[0]), rt.NewList(std::move(members))});
    group.list().group = true;
    groups.push_back(group);
    members.clear();
  }
  return rt.NewList(std::move(groups));
}

Value DoUnique(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "unique", args, {"case_sensitive", "attribute"});
  const AttributePath path(rt, a.ValueOr(1, Value::None()));
  DictObject seen;
  std::vector<Value> unique;
  for (const Value& item : Iterate(rt, self)) {
    Value key = path.Get(rt, item);
    if (!a.Bool(0, false)) key = IgnoreCase(rt, key);
    if (!rt.Step(key.IsString() ? 4 : static_cast<int64_t>(seen.items.size()) + 1) || !CheckHashable(rt, key)) break;
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value());
    unique.push_back(item);
  }
  return Generator(rt, std::move(unique));
}

Value DoBatch(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t count = a.Int(0, 1);
  const Value fill = a.ValueOr(1, Value::None());
  if (!rt.ok()) return Value();
  std::vector<Value> batches, row;
  for (const Value& item : Iterate(rt, self)) {
    // A count that is never reached (0, negative) makes one row of it all, as in Python.
    if (static_cast<int64_t>(row.size()) == count) {
      batches.push_back(rt.NewList(std::move(row)));
      row.clear();
    }
    row.push_back(item);
    if (!rt.Step()) return Value();
  }
  if (!row.empty()) {
    if (!fill.IsNone()) {
      if (count > rt.limits().range_items) return rt.Fail("batch(): too many items to fill in");
      while (static_cast<int64_t>(row.size()) < count) row.push_back(fill);
    }
    batches.push_back(rt.NewList(std::move(row)));
  }
  return Generator(rt, std::move(batches));
}

Value DoSlice(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "slice", args, {"slices", "fill_with"}, 1);
  const int64_t slices = a.Int(0, 1);
  const Value fill = a.ValueOr(1, Value::None());
  const std::vector<Value> items = Iterate(rt, self);
  if (!rt.ok()) return Value();
  if (slices == 0) return rt.Fail("integer division or modulo by zero");
  if (slices > rt.limits().range_items) return rt.Fail("slice(): too many slices");
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> out;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices && rt.Step(); ++i) {
    const bool extra = i < size % slices;
    const int64_t end = begin + size / slices + (extra ? 1 : 0);
    std::vector<Value> slice(items.begin() + begin, items.begin() + end);
    if (!fill.IsNone() && !extra) slice.push_back(fill);
    out.push_back(rt.NewList(std::move(slice)));
    begin = end;
  }
  return Generator(rt, std::move(out));
}

Value DoJoin(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "join", args, {"d", "attribute"});
  const Value separator = a.Has(0) ? ToStr(rt, a[0]) : rt.View("", true);
  const AttributePath path(rt, a.ValueOr(1, Value::None()));
  std::vector<Value> strings;
  for (const Value& item : Iterate(rt, self)) {
    strings.push_back(ToStr(rt, path.Get(rt, item)));
    if (!rt.ok()) return Value();
  }
  return rt.ok() ? JoinStrings(rt, separator, strings) : Value();
}

Value DoItems(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "items", args, {});
  if (!self.IsUndefined() && !self.IsDict()) return rt.Fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  if (self.IsDict()) {
    for (const auto& [key, value] : self.dict().items) {
      if (!rt.ok()) break;
      pairs.push_back(rt.NewTuple({key, value}));
    }
  }
  return Generator(rt, std::move(pairs));
}

constexpr Builtin kFilters[] = {
    {"batch", DoBatch},     {"dictsort", DoDictSort}, {"first", DoFirst}, {"groupby", DoGroupBy},
    {"items", DoItems},     {"join", DoJoin},         {"last", DoLast},   {"list", DoList},
    {"reverse", DoReverse}, {"slice", DoSlice},       {"sort", DoSort},   {"unique", DoUnique},
};

}  // namespace

NativeFunction FindSequenceFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace moe::chat
