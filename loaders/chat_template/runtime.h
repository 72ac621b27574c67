// What one render owns: its values, its budgets and its error.
//
// Errors are sticky. The first Fail() is kept, later ones are ignored; whoever calls something that may fail goes on
// with the Undefined it got back and stops at the next ok() or Step(). Nothing a render does outlives it, so carrying
// on for a few steps is harmless, and expressions read like expressions.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_RUNTIME_H_
#define MOE_LOADERS_CHAT_TEMPLATE_RUNTIME_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loaders/chat_template/text.h"
#include "loaders/chat_template/value.h"
#include "parallel/base/status.h"

namespace moe::chat {

// A template comes with a model and a request's messages from anybody, so a render is bounded in every direction.
struct Limits {
  int64_t steps = 2'000'000;              // About 50 ns each.
  int64_t processed_bytes = 128ll << 20;  // Copied, searched or converted.
  int64_t live_bytes = 16ll << 20;        // Strings, lists and dicts at one time; the request itself is not copied.
  int macro_depth = 64;                   // Calls of macros and of recursive loops within each other.
  int eval_depth = 1000;                  // Nested expressions and statements, across macro calls.
  int value_depth = 100;                  // Lists in lists, in messages or made by the template.
  int64_t range_items = 100'000;          // As jinja's sandbox has it.
};

class Runtime {
 public:
  Runtime(std::string_view file, const Limits& limits) : file_(file), limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // Records kInvalidArgument "FILE: chat_template line N: message" and returns Undefined.
  template <typename... Args>
  Value Fail(const Args&... args) {
    if (ok()) FailWith(Cat(args...), /*locate=*/true);
    return Value();
  }
  // Records a message that the template itself raises, without decoration.
  Value Raise(std::string_view message);
  // Fails because `value` was used in a way undefined values cannot be.
  Value FailUndefined(const Value& value);

  // Counts work. False once the render has failed, be it by this call.
  bool Step(int64_t steps = 1);
  bool Process(size_t bytes);
  // Counts memory, before it is allocated; false (and nothing counted) when there is too much.
  bool Reserve(size_t bytes);
  void Release(size_t bytes) { live_bytes_ -= static_cast<int64_t>(bytes); }

  // Strings. The view must outlive the render.
  Value View(std::string_view text, bool trusted);
  Value Copy(std::string_view text, bool trusted);
  Value Slice(const Value& string, size_t begin, size_t end);

  // Everything else. The result lives until the render ends.
  template <typename T, typename... Args>
  T* New(Args&&... args) {
    Reserve(sizeof(T) + 2 * sizeof(void*));
    auto owned = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = owned.get();
    owned_.push_back(std::move(owned));
    return raw;
  }
  Value NewList(std::vector<Value> items, ListKind kind = ListKind::kList, bool trusted = true);
  Value NewTuple(std::vector<Value> items) { return NewList(std::move(items), ListKind::kTuple); }
  Value NewDict(DictObject** dict, bool trusted = true);
  // Adds to a dict that is being built.
  void Put(DictObject* dict, const Value& key, Value value);
  Value NewFunction(std::string_view name, NativeFunction function, Value self);
  Value UndefinedName(std::string_view name);
  Value UndefinedAttribute(const Value& object, std::string_view name);
  Value UndefinedBecause(std::string hint);

  const Limits& limits() const { return limits_; }
  int line = 0;  // Of the template; where the error is said to be.
  int macro_depth = 0;
  std::chrono::system_clock::time_point now;  // What strftime_now sees.

 private:
  void FailWith(const std::string& message, bool locate);

  std::string_view file_;
  Limits limits_;
  Status status_;
  int64_t steps_ = 0;
  int64_t processed_bytes_ = 0;
  int64_t live_bytes_ = 0;
  std::vector<std::unique_ptr<Owned>> owned_;  // Last: what it holds gives bytes back when it goes.
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_RUNTIME_H_
