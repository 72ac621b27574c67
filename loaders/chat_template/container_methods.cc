// The methods of dict, list and tuple. Those that change their object do not exist here (see attributes.cc).
#include <algorithm>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {
namespace {

Value View(Runtime& rt, const Value& self, std::string_view label, std::vector<Value> items) {
  Value view = rt.NewList(std::move(items), ListKind::kView, self.trusted());
  view.list().label = label;
  return view;
}

Value DoItems(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "items", args, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items) {
    if (!rt.ok()) break;
    items.push_back(rt.NewTuple({key, value}));
  }
  return View(rt, self, "dict_items", std::move(items));
}

Value DoKeys(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "keys", args, {});
  return View(rt, self, "dict_keys", Iterate(rt, self));
}

Value DoValues(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "values", args, {});
  std::vector<Value> items;
  for (const auto& item : self.dict().items) items.push_back(item.second);
  return View(rt, self, "dict_values", std::move(items));
}

Value DoGet(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "get", args, {"key", "default"}, 1);
  if (!rt.Step(a[0].IsString() ? 1 : static_cast<int64_t>(self.dict().items.size())) || !CheckHashable(rt, a[0])) {
    return Value();
  }
  const Value* found = self.dict().Find(a[0]);
  return found != nullptr ? *found : a.ValueOr(1, Value::None());
}

Value DoCopyDict(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "copy", args, {});
  DictObject* copy = nullptr;
  Value out = rt.NewDict(&copy, self.trusted());
  for (const auto& [key, value] : self.dict().items) rt.Put(copy, key, value);
  return out;
}

Value DoCopyList(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "copy", args, {});
  return rt.NewList(self.list().items, ListKind::kList, self.trusted());
}

Value DoIndex(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "index", args, {"value", "start", "stop"}, 1);
  const auto& items = self.list().items;
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [size](int64_t at) { return at < 0 ? std::max<int64_t>(at + size, 0) : std::min(at, size); };
  for (int64_t i = clamp(a.Int(1, 0)), end = clamp(a.Int(2, size)); i < end && rt.ok(); ++i) {
    if (Equal(rt, items[static_cast<size_t>(i)], a[0])) return Value::Int(i);
  }
  return rt.Fail("the value is not in the ", TypeName(self));
}

Value DoCount(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "count", args, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.list().items) {
    if (!rt.ok()) break;
    count += Equal(rt, item, a[0]) ? 1 : 0;
  }
  return Value::Int(count);
}

}  // namespace

NativeFunction FindDictMethod(std::string_view name) {
  if (name == "get") return DoGet;
  if (name == "items") return DoItems;
  if (name == "keys") return DoKeys;
  if (name == "values") return DoValues;
  if (name == "copy") return DoCopyDict;
  return nullptr;
}

NativeFunction FindListMethod(std::string_view name, ListKind kind) {
  if (kind == ListKind::kView || kind == ListKind::kGenerator) return nullptr;
  if (name == "index") return DoIndex;
  if (name == "count") return DoCount;
  if (name == "copy" && kind == ListKind::kList) return DoCopyList;
  return nullptr;
}

}  // namespace moe::chat
