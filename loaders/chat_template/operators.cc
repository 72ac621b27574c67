#include "loaders/chat_template/operators.h"

#include <algorithm>

#include "loaders/chat_template/unicode.h"

namespace moe::chat {

bool Truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.number() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
      return v.list().kind == ListKind::kGenerator || !v.list().items.empty();
    case Kind::kDict:
      return !v.dict().items.empty();
    case Kind::kObject:
      return true;
  }
  return false;
}

bool SameKey(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsInt() && b.IsInt() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBigInt:
      return a.big_integer() == b.big_integer();
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList: {
      if (&a.list() == &b.list()) return true;
      if (a.list().items.size() != b.list().items.size()) return false;
      for (size_t i = 0; i < a.list().items.size(); ++i) {
        const Value &x = a.list().items[i], &y = b.list().items[i];
        // Keys are short tuples of scalars; one within another is compared by identity, which keeps this flat.
        if (x.IsList() || y.IsList() ? !(x.IsList() && y.IsList() && &x.list() == &y.list()) : !SameKey(x, y)) {
          return false;
        }
      }
      return true;
    }
    case Kind::kObject:
      return &a.object() == &b.object();
    default:
      return false;
  }
}

bool CheckHashable(Runtime& rt, const Value& v) {
  const bool hashable = !v.IsDict() && (!v.IsList() || v.list().kind == ListKind::kTuple);
  if (!hashable) rt.Fail("unhashable type: '", TypeName(v), "'");
  return hashable;
}

bool Equal(Runtime& rt, const Value& a, const Value& b, int depth) {
  if (!rt.Step()) return false;
  if (depth > rt.limits().value_depth) {
    rt.Fail("values are nested deeper than ", rt.limits().value_depth, " levels (limit on depth)");
    return false;
  }
  if (a.IsString() && b.IsString()) {
    if (a.text().size() != b.text().size()) return false;
    return rt.Process(a.text().size()) && a.text() == b.text();
  }
  if (a.IsList() && b.IsList()) {
    const auto &x = a.list(), &y = b.list();
    if (&x == &y) return true;
    if (x.kind != y.kind || x.items.size() != y.items.size()) return false;
    if (x.kind == ListKind::kGenerator || x.kind == ListKind::kView) return false;
    for (size_t i = 0; i < x.items.size(); ++i) {
      if (!Equal(rt, x.items[i], y.items[i], depth + 1)) return false;
    }
    return true;
  }
  if (a.IsDict() && b.IsDict()) {
    if (a.dict().items.size() != b.dict().items.size()) return false;
    for (const auto& [key, value] : a.dict().items) {
      const Value* other = b.dict().Find(key);
      if (other == nullptr || !Equal(rt, value, *other, depth + 1)) return false;
    }
    return true;
  }
  return !a.IsList() && !b.IsList() && SameKey(a, b);
}

int Order(Runtime& rt, const Value& a, const Value& b, std::string_view op, int depth) {
  if (!rt.Step()) return 0;
  if (a.IsUndefined() || b.IsUndefined()) {
    rt.FailUndefined(a.IsUndefined() ? a : b);
    return 0;
  }
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInt() && b.IsInt()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    return a.number() < b.number() ? -1 : a.number() > b.number();
  }
  if (a.IsString() && b.IsString()) {
    rt.Process(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());  // The order of UTF-8 bytes is the order of code points.
  }
  if (a.IsList() && b.IsList() && a.list().kind == b.list().kind && depth < rt.limits().value_depth) {
    const auto &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < x.size() && i < y.size() && rt.ok(); ++i) {
      if (!Equal(rt, x[i], y[i], depth + 1)) return Order(rt, x[i], y[i], op, depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  rt.Fail("'", op, "' not supported between instances of '", TypeName(a), "' and '", TypeName(b), "'");
  return 0;
}

bool Contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.IsString()) {
        if (item.IsUndefined()) rt.FailUndefined(item);
        rt.Fail("'in <string>' requires string as left operand, not ", TypeName(item));
        return false;
      }
      return rt.Process(container.text().size()) && container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict:
      rt.Step(item.IsString() ? 1 : static_cast<int64_t>(container.dict().items.size()));
      return CheckHashable(rt, item) && container.dict().Find(item) != nullptr;
    case Kind::kList:
      for (const Value& v : Iterate(rt, container)) {
        if (Equal(rt, v, item)) return true;
        if (!rt.ok()) return false;
      }
      return false;
    default:
      rt.Fail("argument of type '", TypeName(container), "' is not iterable");
      return false;
  }
}

bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  // Nothing is in order with not-a-number.
  const bool unordered = a.IsNumber() && b.IsNumber() && (a.number() != a.number() || b.number() != b.number());
  switch (op) {
    case CompareOp::kEq:
      return Equal(rt, a, b);
    case CompareOp::kNe:
      return !Equal(rt, a, b);
    case CompareOp::kLt:
      return !unordered && Order(rt, a, b, "<") < 0;
    case CompareOp::kLe:
      return !unordered && Order(rt, a, b, "<=") <= 0;
    case CompareOp::kGt:
      return !unordered && Order(rt, a, b, ">") > 0;
    case CompareOp::kGe:
      return !unordered && Order(rt, a, b, ">=") >= 0;
    case CompareOp::kIn:
      return Contains(rt, b, a);
    case CompareOp::kNotIn:
      return !Contains(rt, b, a);
  }
  return false;
}

std::vector<Value> Iterate(Runtime& rt, const Value& v) {
  std::vector<Value> items;
  switch (v.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
      if (!rt.Step(static_cast<int64_t>(v.list().items.size()) / 8)) return items;
      if (v.list().kind == ListKind::kGenerator) {
        items.swap(v.list().items);
        return items;
      }
      return v.list().items;
    case Kind::kDict:
      if (!rt.Step(static_cast<int64_t>(v.dict().items.size()) / 8)) return items;
      for (const auto& item : v.dict().items) items.push_back(item.first);
      return items;
    case Kind::kString:
      for (size_t pos = 0; pos < v.text().size() && rt.Step();) {
        const size_t bytes = DecodeAt(v.text(), pos).bytes;
        items.push_back(rt.Slice(v, pos, pos + bytes));
        pos += bytes;
      }
      return items;
    default:
      rt.Fail("'", TypeName(v), "' object is not iterable");
      return items;
  }
}

int64_t Length(Runtime& rt, const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      rt.Process(2 * v.text().size());
      return static_cast<int64_t>(CountCodePoints(v.text()));
    case Kind::kDict:
      return static_cast<int64_t>(v.dict().items.size());
    case Kind::kList:
      if (v.list().kind != ListKind::kGenerator) return static_cast<int64_t>(v.list().items.size());
      break;
    default:
      break;
  }
  rt.Fail("object of type '", TypeName(v), "' has no len()");
  return 0;
}

bool AllTrusted(Runtime& rt, const Value& v, int depth) {
  if (!v.trusted() || depth > rt.limits().value_depth || !rt.Step()) return false;
  if (v.IsList()) {
    for (const Value& item : v.list().items) {
      if (!AllTrusted(rt, item, depth + 1)) return false;
    }
  } else if (v.IsDict()) {
    for (const auto& [key, value] : v.dict().items) {
      if (!AllTrusted(rt, key, depth + 1) || !AllTrusted(rt, value, depth + 1)) return false;
    }
  }
  return true;
}

}  // namespace moe::chat
