// The global functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {
namespace {

Value DoRange(Runtime& rt, const Value&, Args& args) {
  const Arguments a(rt, "range", args, {"start", "stop", "step"}, 1);
  int64_t start = a.Int(0, 0), stop = a.Int(1, 0);
  const int64_t step = a.Int(2, 1);
  if (!a.Has(1)) std::swap(start, stop);
  if (!rt.ok()) return Value();
  if (step == 0) return rt.Fail("range() arg 3 must not be zero");
  // In 128 bits, since the distance between two int64 may not fit one.
  const __int128 distance = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (count > rt.limits().range_items) {
    return rt.Fail("Range too big. The sandbox blocks ranges larger than ", rt.limits().range_items, " items.");
  }
  std::vector<Value> items;
  if (!rt.Reserve(static_cast<size_t>(count) * sizeof(Value))) return Value();
  rt.Release(static_cast<size_t>(count) * sizeof(Value));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.push_back(Value::Int(start + i * step));
  Value range = rt.NewList(std::move(items), ListKind::kRange);
  range.list().label =
      step == 1 ? Cat("range(", start, ", ", stop, ")") : Cat("range(", start, ", ", stop, ", ", step, ")");
  return range;
}

Value DoDict(Runtime& rt, const Value&, Args& args) {
  return Value::Dict(MakeDict(rt, "dict", args));
}

Value DoNamespace(Runtime& rt, const Value&, Args& args) {
  const DictObject* attributes = MakeDict(rt, "namespace", args);
  auto* names = rt.New<Namespace>();
  for (const auto& [key, value] : attributes->items) {
    if (key.IsString() && key.text().substr(0, 1) == "_") {
      return rt.Fail("a namespace cannot have the attribute '", key.text(), "': it starts with an underscore");
    }
    names->Set(key, value);
  }
  return Value::Of(names);
}

// cycler(…): .next(), .reset(), .current.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  bool GetAttribute(Runtime& rt, std::string_view name, Value* out) override {
    if (name == "current") {
      *out = items_[position_];
    } else if (name == "next") {
      *out = rt.NewFunction("next", Next, Value::Of(this));
    } else if (name == "reset") {
      *out = rt.NewFunction("reset", Reset, Value::Of(this));
    } else {
      return false;
    }
    return true;
  }

 private:
  static Value Next(Runtime&, const Value& self, Args&) {
    auto* cycler = self.As<Cycler>();
    Value item = cycler->items_[cycler->position_];
    cycler->position_ = (cycler->position_ + 1) % cycler->items_.size();
    return item;
  }
  static Value Reset(Runtime&, const Value& self, Args&) {
    self.As<Cycler>()->position_ = 0;
    return Value::None();
  }

  std::vector<Value> items_;
  size_t position_ = 0;
};

// joiner(sep): "" at the first call, the separator from then on.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value Call(Runtime& rt, Args&) override {
    if (used_) return separator_;
    used_ = true;
    return rt.View("", true);
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value DoCycler(Runtime& rt, const Value&, Args& args) {
  if (args.positional.empty() || !args.named.empty()) return rt.Fail("at least one item has to be provided");
  return Value::Of(rt.New<Cycler>(args.positional));
}

Value DoJoiner(Runtime& rt, const Value&, Args& args) {
  const Arguments a(rt, "joiner", args, {"sep"});
  return Value::Of(rt.New<Joiner>(a.ValueOr(0, rt.View(", ", true))));
}

Value DoRaiseException(Runtime& rt, const Value&, Args& args) {
  const Arguments a(rt, "raise_exception", args, {"message"}, 1);
  if (!rt.ok()) return Value();
  const Value message = ToStr(rt, a[0]);
  return rt.ok() ? rt.Raise(message.text()) : Value();
}

Value DoStrftimeNow(Runtime& rt, const Value&, Args& args) {
  const Arguments a(rt, "strftime_now", args, {"format"}, 1);
  std::string format(a.Text(0, ""));
  constexpr size_t kMaxBytes = 4096;
  if (format.size() > kMaxBytes / 4) return rt.Fail("strftime_now(): the format is too long");
  if (!rt.ok() || format.empty()) return rt.View("", true);
  using std::chrono::duration_cast, std::chrono::microseconds;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(rt.now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  // %f is Python's own; %z and %Z are empty there, since the time has no zone.
  const auto micros = duration_cast<microseconds>(rt.now.time_since_epoch()).count() % 1'000'000;
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), "%06lld", static_cast<long long>(micros < 0 ? micros + 1'000'000 : micros));
  std::string prepared;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      prepared += format[i];
    } else if (const char c = format[++i]; c == 'f') {
      prepared += fraction;
    } else if (c != 'z' && c != 'Z') {
      prepared += {'%', c};
    }
  }
  prepared += ' ';  // So that an empty result can be told from one that is too long.
  char buffer[kMaxBytes];
  const size_t written = std::strftime(buffer, sizeof(buffer), prepared.c_str(), &parts);
  if (written == 0) return rt.Fail("strftime_now(): the result is too long");
  return rt.Copy(std::string_view(buffer, written - 1), a[0].trusted());
}

constexpr Builtin kGlobals[] = {
    {"range", DoRange},
    {"dict", DoDict},
    {"namespace", DoNamespace},
    {"cycler", DoCycler},
    {"joiner", DoJoiner},
    {"raise_exception", DoRaiseException},
    {"strftime_now", DoStrftimeNow},
};

}  // namespace

DictObject* MakeDict(Runtime& rt, std::string_view function, const Args& args) {
  DictObject* dict = nullptr;
  rt.NewDict(&dict);
  if (args.positional.size() > 1) rt.Fail(function, " expected at most 1 argument, got ", args.positional.size());
  if (args.positional.size() == 1) {
    const Value& source = args.positional[0];
    if (source.IsDict()) {
      for (const auto& [key, value] : source.dict().items) rt.Put(dict, key, value);
    } else {
      for (const Value& item : Iterate(rt, source)) {
        const std::vector<Value> pair = Iterate(rt, item);
        if (rt.ok() && pair.size() != 2) rt.Fail("dictionary update sequence element has length ", pair.size());
        if (!rt.ok() || !CheckHashable(rt, pair[0])) break;
        rt.Put(dict, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) rt.Put(dict, rt.View(name, true), value);
  return dict;
}

Value FindGlobal(Runtime& rt, std::string_view name) {
  const NativeFunction function = FindIn(kGlobals, name);
  return function == nullptr ? Value() : rt.NewFunction(name, function, Value());
}

}  // namespace moe::chat
