#include "loaders/chat_template/value.h"

#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/runtime.h"

namespace moe::chat {
namespace {
constexpr size_t kIndexFrom = 12;  // Below, comparing keys one by one is faster than hashing.
}

void StringData::Unref() {
  if (immortal || --references > 0) return;
  if (runtime != nullptr) runtime->Release(charged_bytes);
  delete this;
}

std::string UndefinedInfo::Message() const {
  if (!hint.empty()) return hint;
  if (object.empty()) return Cat("'", name, "' is undefined");
  return Cat("'", object, object == "None" ? "" : " object", "' has no attribute '", name, "'");
}

Value Value::Undefined(const UndefinedInfo* info) {
  Value v;
  v.u_.undefined = info;
  return v;
}

Value Value::None(bool trusted) {
  Value v;
  v.kind_ = Kind::kNone;
  v.trusted_ = trusted;
  return v;
}

Value Value::Bool(bool value, bool trusted) {
  Value v = Int(value ? 1 : 0, trusted);
  v.kind_ = Kind::kBool;
  return v;
}

Value Value::Int(int64_t value, bool trusted) {
  Value v;
  v.kind_ = Kind::kInt;
  v.trusted_ = trusted;
  v.u_.integer = value;
  return v;
}

Value Value::BigInt(uint64_t value, bool trusted) {
  Value v = Int(static_cast<int64_t>(value), trusted);
  v.kind_ = Kind::kBigInt;
  return v;
}

Value Value::Float(double value, bool trusted) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.trusted_ = trusted;
  v.u_.number = value;
  return v;
}

Value Value::String(StringData* adopted) {
  Value v;
  v.kind_ = Kind::kString;
  v.u_.string = adopted;
  return v;
}

Value Value::List(ListObject* list, bool trusted) {
  Value v;
  v.kind_ = Kind::kList;
  v.trusted_ = trusted;
  v.u_.list = list;
  return v;
}

Value Value::Dict(DictObject* dict, bool trusted) {
  Value v;
  v.kind_ = Kind::kDict;
  v.trusted_ = trusted;
  v.u_.dict = dict;
  return v;
}

Value Value::Of(Object* object) {
  Value v;
  v.kind_ = Kind::kObject;
  v.u_.object = object;
  return v;
}

const Value* DictObject::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &items[it->second].second;
  }
  for (const auto& [k, v] : items) {
    if (k.IsString() && k.text() == key) return &v;
  }
  return nullptr;
}

const Value* DictObject::Find(const Value& key) const {
  if (key.IsString()) return Find(key.text());
  for (const auto& [k, v] : items) {
    if (SameKey(k, key)) return &v;
  }
  return nullptr;
}

void DictObject::Set(const Value& key, Value value) {
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
  if (items.size() < kIndexFrom) return;
  if (items.size() == kIndexFrom) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].first.IsString()) index_.emplace(items[i].first.text(), i);
    }
  } else if (key.IsString()) {
    index_.emplace(items.back().first.text(), items.size() - 1);
  }
}

Value Object::Call(Runtime& runtime, Args&) {
  return runtime.Fail("'", type_name(), "' object is not callable");
}

bool Namespace::GetAttribute(Runtime&, std::string_view name, Value* out) {
  const Value* found = attributes_.Find(name);
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return value.object().type_name();
    case Kind::kList:
      switch (value.list().kind) {
        case ListKind::kList:
          return "list";
        case ListKind::kTuple:
          return "tuple";
        case ListKind::kRange:
          return "range";
        case ListKind::kView:
          return "dict view";
        case ListKind::kGenerator:
          return "generator";
      }
  }
  return "object";
}

}  // namespace moe::chat
