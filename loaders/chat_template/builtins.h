// The filters, tests and global functions of the template language. All are looked up when a template is parsed; the
// filters and tests that take the name of another (map, select …) look that one up when they run.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_BUILTINS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_BUILTINS_H_

#include <string_view>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

struct Builtin {
  std::string_view name;
  NativeFunction function;
};

// Null when there is none. A filter gets what it is applied to as `self`, a test as well; a test returns a bool.
NativeFunction FindFilter(std::string_view name);
NativeFunction FindTest(std::string_view name);
// A global function as a value; Undefined when there is none.
Value FindGlobal(Runtime& runtime, std::string_view name);

// The tables behind FindFilter: each null if the filter is not one of theirs.
NativeFunction FindTextFilter(std::string_view name);
NativeFunction FindNumberFilter(std::string_view name);
NativeFunction FindSequenceFilter(std::string_view name);
NativeFunction FindSelectFilter(std::string_view name);

template <size_t kSize>
NativeFunction FindIn(const Builtin (&table)[kSize], std::string_view name) {
  for (const Builtin& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

// dict(*positional, **named), as used by the globals dict and namespace.
DictObject* MakeDict(Runtime& runtime, std::string_view function, const Args& args);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_BUILTINS_H_
