// The methods of str that take it apart, and join. `self` is a string.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_STRING_SPLIT_H_
#define MOE_LOADERS_CHAT_TEMPLATE_STRING_SPLIT_H_

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

Value DoSplit(Runtime& runtime, const Value& self, Args& args);
Value DoRightSplit(Runtime& runtime, const Value& self, Args& args);
Value DoSplitLines(Runtime& runtime, const Value& self, Args& args);
Value DoPartition(Runtime& runtime, const Value& self, Args& args);
Value DoRightPartition(Runtime& runtime, const Value& self, Args& args);
Value DoJoin(Runtime& runtime, const Value& self, Args& args);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_STRING_SPLIT_H_
