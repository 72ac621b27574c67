// value.name, value[index], value[a:b:c], and the methods these find.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTES_H_
#define MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTES_H_

#include <string_view>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// value.name: a method first, then an item of that name. Undefined if there is neither; fails on Undefined.
Value GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
// value[index]: an item first, then a method of that name.
Value GetItem(Runtime& runtime, const Value& value, const Value& index);
// Only what Python calls an attribute (the filter attr); false if there is none.
bool FindAttribute(Runtime& runtime, const Value& value, std::string_view name, Value* out);
// Bounds are ints or None.
Value GetSlice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

// Methods of the built-in types; null if there is no such method.
NativeFunction FindStringMethod(std::string_view name);
NativeFunction FindDictMethod(std::string_view name);
NativeFunction FindListMethod(std::string_view name, ListKind kind);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTES_H_
