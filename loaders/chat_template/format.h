// Values to text: str(), repr(), json.dumps(), "%" and str.format().
#ifndef MOE_LOADERS_CHAT_TEMPLATE_FORMAT_H_
#define MOE_LOADERS_CHAT_TEMPLATE_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// What Python prints for a float: the shortest digits that read back as the same number.
std::string FloatRepr(double value);

// str(): a string keeps its provenance piece by piece, other things have one for all of their text.
void AppendStr(Runtime& runtime, const Value& value, Text* out);
Value ToStr(Runtime& runtime, const Value& value);
// repr().
void AppendRepr(Runtime& runtime, const Value& value, Text* out);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // One level of it.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(). Untrusted as a whole if any of the value is.
Value ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// format % values, for a string.
Value FormatPercent(Runtime& runtime, const Value& format, const Value& values);
// format.format(*args.positional, **args.named).
Value FormatBraces(Runtime& runtime, const Value& format, const Args& args);
// One value in Python's format mini-language, e.g. ">8", ".2f", "," (the part after ':').
void AppendFormatted(Runtime& runtime, const Value& value, std::string_view spec, Text* out);
// The digits of `value` for a float presentation type (e E f F g G %), `precision` digits.
std::string FormatFloat(double value, char type, int precision, bool alternate);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_FORMAT_H_
