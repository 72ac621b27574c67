#include "loaders/chat_template/attributes.h"

#include <algorithm>
#include <array>

#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

// The sandbox hides what would change a dict or a list, and Python's insides.
bool IsUnsafe(const Value& v, std::string_view name) {
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                            "insert", "sort",  "extend", "remove"};
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__") return true;
  if (v.IsDict()) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  if (v.IsList() && v.list().kind == ListKind::kList) return std::find(kList.begin(), kList.end(), name) != kList.end();
  return false;
}

struct Bounds {
  int64_t start, stop, step;
};

// Python's rules for slice bounds against a sequence of `size` items.
bool SliceBounds(Runtime& rt, const Value& start, const Value& stop, const Value& step, int64_t size, Bounds* out) {
  for (const Value* v : {&start, &stop, &step}) {
    if (v->IsUndefined()) {
      rt.FailUndefined(*v);
      return false;
    }
    if (!v->IsNone() && !v->IsInt()) {
      rt.Fail("slice indices must be integers or None or have an __index__ method");
      return false;
    }
  }
  out->step = step.IsNone() ? 1 : step.integer();
  if (out->step == 0) {
    rt.Fail("slice step cannot be zero");
    return false;
  }
  const bool down = out->step < 0;
  const auto clamp = [&](const Value& v, int64_t absent) {
    if (v.IsNone()) return absent;
    int64_t at = v.integer();
    if (at < 0) at = at < -size ? (down ? -1 : 0) : at + size;
    return std::min(at, down ? size - 1 : size);
  };
  out->start = clamp(start, down ? size - 1 : 0);
  out->stop = clamp(stop, down ? -1 : size);
  return true;
}

Value SliceString(Runtime& rt, const Value& v, const Bounds& b, int64_t length) {
  const std::string_view text = v.text();
  if (b.step == 1) {
    if (b.start >= b.stop) return rt.View("", true);
    const size_t from = OffsetOf(text, static_cast<size_t>(b.start));
    const size_t to = from + OffsetOf(text.substr(from), static_cast<size_t>(b.stop - b.start));
    return rt.Slice(v, from, to);
  }
  if (!rt.Reserve(static_cast<size_t>(length) * sizeof(size_t))) return Value();
  std::vector<size_t> offsets;
  for (size_t pos = 0; pos < text.size(); pos += DecodeAt(text, pos).bytes) offsets.push_back(pos);
  Text out(rt);
  // Compared before adding: start + step may overflow for a step near the ends of int64.
  for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop;) {
    if (!rt.Step()) break;
    const size_t from = offsets[static_cast<size_t>(i)];
    out.AppendSlice(v.string(), from, from + DecodeAt(text, from).bytes);
    if (__builtin_add_overflow(i, b.step, &i)) break;
  }
  rt.Release(static_cast<size_t>(length) * sizeof(size_t));
  return out.Finish();
}

}  // namespace

bool FindAttribute(Runtime& rt, const Value& v, std::string_view name, Value* out) {
  NativeFunction method = nullptr;
  switch (v.kind()) {
    case Kind::kString:
      method = FindStringMethod(name);
      break;
    case Kind::kDict:
      method = FindDictMethod(name);
      break;
    case Kind::kList:
      if (v.list().group && (name == "grouper" || name == "list")) {
        *out = v.list().items[name == "list" ? 1 : 0];
        return true;
      }
      method = FindListMethod(name, v.list().kind);
      break;
    case Kind::kObject:
      return v.object().GetAttribute(rt, name, out);
    default:
      break;
  }
  if (method == nullptr) return false;
  *out = rt.NewFunction(name, method, v);
  return true;
}

Value GetAttribute(Runtime& rt, const Value& v, std::string_view name) {
  if (!rt.Step()) return Value();
  if (v.IsUndefined()) return rt.FailUndefined(v);
  if (IsUnsafe(v, name)) {
    return rt.UndefinedBecause(Cat("access to attribute '", name, "' of '", TypeName(v), "' object is unsafe."));
  }
  Value out;
  if (FindAttribute(rt, v, name, &out)) return out;
  if (v.IsDict()) {
    if (const Value* found = v.dict().Find(name)) return *found;
  }
  return rt.UndefinedAttribute(v, name);
}

Value GetItem(Runtime& rt, const Value& v, const Value& index) {
  if (!rt.Step()) return Value();
  if (v.IsUndefined()) return rt.FailUndefined(v);
  if (v.IsDict()) {
    if (!index.IsString()) rt.Step(static_cast<int64_t>(v.dict().items.size()));
    if (const Value* found = v.dict().Find(index)) return *found;
  }
  if (index.IsInt()) {
    int64_t at = index.integer();
    const bool indexed = v.IsList() && v.list().kind != ListKind::kView && v.list().kind != ListKind::kGenerator;
    if (indexed) {
      const auto size = static_cast<int64_t>(v.list().items.size());
      if (at < 0) at += size;
      if (at >= 0 && at < size) return v.list().items[static_cast<size_t>(at)];
    } else if (v.IsString()) {
      const int64_t size = Length(rt, v);
      if (at < 0) at += size;
      if (at >= 0 && at < size) {
        const size_t from = OffsetOf(v.text(), static_cast<size_t>(at));
        return rt.Slice(v, from, from + DecodeAt(v.text(), from).bytes);
      }
    }
    return rt.UndefinedBecause(Cat(TypeName(v), " object has no element ", index.integer()));
  }
  if (index.IsString()) {
    Value out;
    if (IsUnsafe(v, index.text())) {
      return rt.UndefinedBecause(
          Cat("access to attribute '", index.text(), "' of '", TypeName(v), "' object is unsafe."));
    }
    if (FindAttribute(rt, v, index.text(), &out)) return out;
    return rt.UndefinedAttribute(v, index.text());
  }
  return rt.UndefinedBecause(Cat(TypeName(v), " object has no such element"));
}

Value GetSlice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step) {
  if (!rt.Step()) return Value();
  if (v.IsUndefined()) return rt.FailUndefined(v);
  const bool sliced =
      v.IsString() || (v.IsList() && v.list().kind != ListKind::kView && v.list().kind != ListKind::kGenerator);
  if (!sliced) return rt.UndefinedBecause(Cat(TypeName(v), " object has no slices"));
  const int64_t size = Length(rt, v);
  Bounds b;
  if (!SliceBounds(rt, start, stop, step, size, &b)) return Value();
  if (v.IsString()) return SliceString(rt, v, b, size);
  std::vector<Value> items;
  for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop;) {
    items.push_back(v.list().items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, b.step, &i)) break;
  }
  const bool tuple = v.list().kind == ListKind::kTuple;
  return rt.NewList(std::move(items), tuple ? ListKind::kTuple : ListKind::kList, v.trusted());
}

}  // namespace moe::chat
