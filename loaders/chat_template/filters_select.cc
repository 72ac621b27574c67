// Filters that apply other filters and tests: map, select, reject, selectattr, rejectattr; and default, attr.
#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attribute_path.h"
#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {
namespace {

Value Generator(Runtime& rt, std::vector<Value> items) {
  return rt.NewList(std::move(items), ListKind::kGenerator);
}

Value DoMap(Runtime& rt, const Value& self, Args& args) {
  std::vector<Value> mapped;
  if (!Truth(self)) return Generator(rt, {});
  if (args.positional.empty()) {
    const Arguments a(rt, "map", args, {"attribute", "default"});
    if (!a.Has(0)) return rt.Fail("map requires a filter argument");
    const AttributePath path(rt, a[0]);
    const bool has_default = a.Has(1) && !a[1].IsNone();
    for (const Value& item : Iterate(rt, self)) {
      mapped.push_back(path.Get(rt, item, has_default ? &a[1] : nullptr));
      if (!rt.Step()) break;
    }
    return Generator(rt, std::move(mapped));
  }
  const Value name = args.positional[0];
  const NativeFunction filter = name.IsString() ? FindFilter(name.text()) : nullptr;
  if (filter == nullptr) return rt.Fail("No filter named '", name.IsString() ? name.text() : "", "'.");
  // A filter that maps may map a filter that maps, and so on: as deep as a macro may call itself.
  if (rt.macro_depth >= rt.limits().macro_depth) return rt.Fail("map is nested too deeply (limit on depth)");
  ++rt.macro_depth;
  const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : Iterate(rt, self)) {
    Args copy = rest;
    mapped.push_back(filter(rt, item, copy));
    if (!rt.Step()) break;
  }
  --rt.macro_depth;
  return Generator(rt, std::move(mapped));
}

Value Select(Runtime& rt, const Value& self, Args& args, bool by_attribute, bool wanted) {
  if (!Truth(self)) return Generator(rt, {});
  const size_t offset = by_attribute ? 1 : 0;
  if (by_attribute && args.positional.empty()) return rt.Fail("Missing parameter for attribute name");
  const AttributePath path(rt, by_attribute ? args.positional[0] : Value::None());
  NativeFunction test = nullptr;
  Args rest;
  if (args.positional.size() > offset) {
    const Value name = args.positional[offset];
    test = name.IsString() ? FindTest(name.text()) : nullptr;
    if (test == nullptr) return rt.Fail("No test named '", name.IsString() ? name.text() : "", "'.");
    rest.positional.assign(args.positional.begin() + static_cast<int64_t>(offset) + 1, args.positional.end());
    rest.named = args.named;
  }
  std::vector<Value> selected;
  for (const Value& item : Iterate(rt, self)) {
    const Value subject = path.Get(rt, item);
    Args copy = rest;
    if (!rt.Step()) break;
    if (Truth(test == nullptr ? subject : test(rt, subject, copy)) == wanted) selected.push_back(item);
  }
  return Generator(rt, std::move(selected));
}

Value DoSelect(Runtime& rt, const Value& self, Args& args) {
  return Select(rt, self, args, false, true);
}
Value DoReject(Runtime& rt, const Value& self, Args& args) {
  return Select(rt, self, args, false, false);
}
Value DoSelectAttr(Runtime& rt, const Value& self, Args& args) {
  return Select(rt, self, args, true, true);
}
Value DoRejectAttr(Runtime& rt, const Value& self, Args& args) {
  return Select(rt, self, args, true, false);
}

Value DoDefault(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "default", args, {"default_value", "boolean"});
  const bool absent = self.IsUndefined() || (a.Bool(1, false) && !Truth(self));
  return absent ? a.ValueOr(0, rt.View("", true)) : self;
}

Value DoAttr(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "attr", args, {"name"}, 1);
  const std::string_view name = a.Text(0, "");
  if (self.IsUndefined()) return rt.UndefinedAttribute(self, name);
  Value out;
  return FindAttribute(rt, self, name, &out) ? out : rt.UndefinedAttribute(self, name);
}

constexpr Builtin kFilters[] = {
    {"attr", DoAttr},       {"d", DoDefault},
    {"default", DoDefault}, {"map", DoMap},
    {"reject", DoReject},   {"rejectattr", DoRejectAttr},
    {"select", DoSelect},   {"selectattr", DoSelectAttr},
};

}  // namespace

NativeFunction FindSelectFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

NativeFunction FindFilter(std::string_view name) {
  if (NativeFunction f = FindTextFilter(name)) return f;
  if (NativeFunction f = FindNumberFilter(name)) return f;
  if (NativeFunction f = FindSequenceFilter(name)) return f;
  return FindSelectFilter(name);
}

}  // namespace moe::chat
