// Matches the arguments of a call with the parameters of a function of the engine.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_ARGUMENTS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_ARGUMENTS_H_

#include <initializer_list>
#include <string_view>
#include <vector>

#include "loaders/chat_template/runtime.h"

namespace moe::chat {

// Fails the render for too many, unknown, doubled or missing arguments. Getters return the default for an argument that
// was not given (or is None, where that is how Python's signature spells the default).
class Arguments {
 public:
  Arguments(Runtime& runtime, std::string_view function, const Args& args,
            std::initializer_list<std::string_view> names, size_t required = 0);

  bool Has(size_t i) const { return given_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }
  Value ValueOr(size_t i, const Value& absent) const { return given_[i] ? values_[i] : absent; }
  int64_t Int(size_t i, int64_t absent) const;  // Fails unless it is an int.
  bool Bool(size_t i, bool absent) const;       // By truth.
  // Fails unless it is a string; "" then.
  std::string_view Text(size_t i, std::string_view absent) const;

 private:
  Runtime& rt_;
  std::string_view function_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_ARGUMENTS_H_
