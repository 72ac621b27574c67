#include "loaders/chat_template/arguments.h"

#include <algorithm>

#include "loaders/chat_template/operators.h"

namespace moe::chat {

Arguments::Arguments(Runtime& rt, std::string_view function, const Args& args,
                     std::initializer_list<std::string_view> names, size_t required)
    : rt_(rt), function_(function), values_(names.size()), given_(names.size()) {
  if (args.positional.size() > names.size()) {
    rt_.Fail(function, "() takes at most ", names.size(), " arguments (", args.positional.size(), " given)");
    return;
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = args.positional[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : args.named) {
    const size_t i = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (i == names.size()) {
      rt_.Fail(function, "() got an unexpected keyword argument '", name, "'");
    } else if (given_[i]) {
      rt_.Fail(function, "() got multiple values for argument '", name, "'");
    } else {
      values_[i] = value;
      given_[i] = true;
    }
  }
  for (size_t i = 0; i < required; ++i) {
    if (!given_[i]) rt_.Fail(function, "() missing required argument '", names.begin()[i], "'");
  }
}

int64_t Arguments::Int(size_t i, int64_t absent) const {
  if (!given_[i] || values_[i].IsNone()) return absent;
  if (values_[i].IsInt()) return values_[i].integer();
  if (values_[i].IsUndefined()) rt_.FailUndefined(values_[i]);
  rt_.Fail(function_, "(): '", TypeName(values_[i]), "' object cannot be interpreted as an integer");
  return absent;
}

bool Arguments::Bool(size_t i, bool absent) const {
  return given_[i] ? Truth(values_[i]) : absent;
}

std::string_view Arguments::Text(size_t i, std::string_view absent) const {
  if (!given_[i] || values_[i].IsNone()) return absent;
  if (values_[i].IsString()) return values_[i].text();
  if (values_[i].IsUndefined()) rt_.FailUndefined(values_[i]);
  rt_.Fail(function_, "(): expected str, got ", TypeName(values_[i]));
  return {};
}

}  // namespace moe::chat
