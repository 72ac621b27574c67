// Python's operators on template values. Errors go to the Runtime (see runtime.h), the result is then Undefined.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_OPERATORS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_OPERATORS_H_

#include <string_view>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

Value Calculate(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Value Negate(Runtime& runtime, const Value& value);

bool Truth(const Value& value);
bool Equal(Runtime& runtime, const Value& left, const Value& right, int depth = 0);
// <0, 0, >0; fails for types without an order between them (`op` is for the message).
int Order(Runtime& runtime, const Value& left, const Value& right, std::string_view op = "<", int depth = 0);
bool Compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
bool Contains(Runtime& runtime, const Value& container, const Value& item);
// Whether two dict keys are one: 1, 1.0 and true are.
bool SameKey(const Value& left, const Value& right);
// Fails if the value cannot be a key (a list, a dict).
bool CheckHashable(Runtime& runtime, const Value& value);

// The items of anything that can be iterated: lists (a generator is empty afterwards), the characters of a string, the
// keys of a dict, nothing for Undefined. Fails otherwise.
std::vector<Value> Iterate(Runtime& runtime, const Value& value);
// len(); fails where there is none.
int64_t Length(Runtime& runtime, const Value& value);
// Whether the value and all it holds was made by the template.
bool AllTrusted(Runtime& runtime, const Value& value, int depth = 0);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_OPERATORS_H_
