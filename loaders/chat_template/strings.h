// Operations on strings that methods and filters share. Each keeps the provenance of the bytes it keeps; those that
// rewrite characters (case mappings) mark the result untrusted unless all of the source is trusted.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_STRINGS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_STRINGS_H_

#include <string_view>
#include <vector>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// Strips characters of `chars` (white space when null) from the ends asked for.
Value Strip(Runtime& runtime, const Value& string, const std::string_view* chars, bool left, bool right);
// `count` < 0: all of them.
Value ReplaceText(Runtime& runtime, const Value& string, const Value& from, const Value& to, int64_t count);
std::vector<Value> SplitLines(Runtime& runtime, const Value& string, bool keep_ends);
Value JoinStrings(Runtime& runtime, const Value& separator, const std::vector<Value>& strings);
Value UpperText(Runtime& runtime, const Value& string);
Value LowerText(Runtime& runtime, const Value& string);
Value Capitalize(Runtime& runtime, const Value& string);
// Pads with `fill` to `width` code points; `left` and `right` say on which sides.
Value Pad(Runtime& runtime, const Value& string, int64_t width, std::string_view fill, bool left, bool right);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_STRINGS_H_
