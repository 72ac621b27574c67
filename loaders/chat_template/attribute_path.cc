#include "loaders/chat_template/attribute_path.h"

#include <algorithm>
#include <cstdlib>

#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/strings.h"

namespace moe::chat {

AttributePath::AttributePath(Runtime& rt, const Value& attribute) {
  if (attribute.IsNone() || attribute.IsUndefined()) return;
  if (!attribute.IsString()) {
    parts_.push_back(attribute);
    return;
  }
  const std::string_view text = attribute.text();
  for (size_t begin = 0; begin <= text.size() && rt.Step();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const bool digits =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
    parts_.push_back(digits ? Value::Int(std::atoi(std::string(part).c_str())) : rt.Slice(attribute, begin, end));
    begin = end + 1;
  }
}

Value AttributePath::Get(Runtime& rt, Value item, const Value* absent) const {
  for (const Value& part : parts_) {
    item = GetItem(rt, item, part);
    if (item.IsUndefined() && absent != nullptr) item = *absent;
  }
  return item;
}

Value IgnoreCase(Runtime& rt, const Value& value) {
  return value.IsString() ? LowerText(rt, value) : value;
}

}  // namespace moe::chat
