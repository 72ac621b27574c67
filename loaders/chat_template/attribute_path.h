// The `attribute` argument of filters: "name", "address.city", "tags.0" or an int.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_
#define MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_

#include <vector>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

class AttributePath {
 public:
  // None or Undefined: the item itself.
  AttributePath(Runtime& runtime, const Value& attribute);
  // `absent` (when not null) stands in for what is undefined on the way.
  Value Get(Runtime& runtime, Value item, const Value* absent = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// What a sort or a comparison that ignores case compares: strings in lower case, everything else as it is.
Value IgnoreCase(Runtime& runtime, const Value& value);

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_ATTRIBUTE_PATH_H_
