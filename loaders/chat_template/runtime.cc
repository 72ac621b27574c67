#include "loaders/chat_template/runtime.h"

namespace moe::chat {

void Runtime::FailWith(const std::string& message, bool locate) {
  status_ = locate ? InvalidError(file_, ": chat_template line ", line, ": ", message) : InvalidError(message);
}

Value Runtime::Raise(std::string_view message) {
  if (ok()) FailWith(std::string(message), /*locate=*/false);
  return Value();
}

Value Runtime::FailUndefined(const Value& value) {
  return Fail(value.undefined() == nullptr ? std::string("value is undefined") : value.undefined()->Message());
}

bool Runtime::Step(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps && ok()) Fail("the template takes more than ", limits_.steps, " steps (limit on work)");
  return ok();
}

bool Runtime::Process(size_t bytes) {
  processed_bytes_ += static_cast<int64_t>(bytes);
  if (processed_bytes_ > limits_.processed_bytes && ok()) {
    Fail("the template moves more than ", limits_.processed_bytes, " bytes (limit on work)");
  }
  return ok();
}

bool Runtime::Reserve(size_t bytes) {
  if (!ok()) return false;
  if (bytes > static_cast<size_t>(limits_.live_bytes) ||
      live_bytes_ + static_cast<int64_t>(bytes) > limits_.live_bytes) {
    Fail("the template needs more than ", limits_.live_bytes, " bytes (limit on memory)");
    return false;
  }
  live_bytes_ += static_cast<int64_t>(bytes);
  return true;
}

Value Runtime::View(std::string_view text, bool trusted) {
  Step();
  auto* data = new StringData;
  data->view = text;
  data->trusted = trusted;
  data->runtime = this;
  if (Reserve(sizeof(StringData))) data->charged_bytes = sizeof(StringData);
  return Value::String(data);
}

Value Runtime::Copy(std::string_view text, bool trusted) {
  Text out(*this);
  out.Append(text, trusted);
  return out.Finish();
}

Value Runtime::Slice(const Value& string, size_t begin, size_t end) {
  if (begin == 0 && end == string.text().size()) return string;
  Text out(*this);
  out.AppendSlice(string.string(), begin, end);
  return out.Finish();
}

Value Runtime::NewList(std::vector<Value> items, ListKind kind, bool trusted) {
  Step(static_cast<int64_t>(items.size()) / 8);
  Reserve(items.size() * sizeof(Value));
  auto* list = New<ListObject>();
  list->kind = kind;
  list->items = std::move(items);
  return Value::List(list, trusted);
}

Value Runtime::NewDict(DictObject** dict, bool trusted) {
  *dict = New<DictObject>();
  return Value::Dict(*dict, trusted);
}

void Runtime::Put(DictObject* dict, const Value& key, Value value) {
  if (Step() && Reserve(2 * sizeof(Value))) dict->Set(key, std::move(value));
}

Value Runtime::NewFunction(std::string_view name, NativeFunction function, Value self) {
  return Value::Of(New<Function>(name, function, std::move(self)));
}

Value Runtime::UndefinedName(std::string_view name) {
  auto* info = New<UndefinedInfo>();
  info->name = name;
  return Value::Undefined(info);
}

Value Runtime::UndefinedAttribute(const Value& object, std::string_view name) {
  constexpr size_t kShown = 100;  // Longer names are data, and nobody reads them.
  auto* info = New<UndefinedInfo>();
  info->object = object.IsNone() ? std::string_view("None") : TypeName(object);
  info->name = name.substr(0, kShown);
  return Value::Undefined(info);
}

Value Runtime::UndefinedBecause(std::string hint) {
  auto* info = New<UndefinedInfo>();
  info->hint = std::move(hint);
  return Value::Undefined(info);
}

}  // namespace moe::chat
