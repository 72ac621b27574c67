#include "loaders/tokenizer/metaspace.h"

#include "loaders/tokenizer/utf8.h"

namespace moe {

StatusOr<Metaspace> ReadMetaspace(const Json& json, std::string_view where) {
  Metaspace settings;
  MOE_ASSIGN_OR_RETURN(settings.replacement, RequireString(json, "replacement", where));
  size_t length = 0;
  if (!settings.replacement.empty()) NextCodePoint(settings.replacement, &length);
  if (length == 0 || length != settings.replacement.size()) {
    return InvalidError(where, ".replacement \"", settings.replacement, "\" is not one character");
  }
  MOE_ASSIGN_OR_RETURN(settings.split, BoolOr(json, "split", true, where));
  MOE_ASSIGN_OR_RETURN(const std::string scheme, StringOr(json, "prepend_scheme", "always", where));
  if (scheme == "never") {
    settings.scheme = Metaspace::kNever;
  } else if (scheme == "first") {
    settings.scheme = Metaspace::kFirst;
  } else if (scheme != "always") {
    return UnsupportedError(where, ".prepend_scheme \"", scheme, "\"");
  }
  // Older files say only this.
  MOE_ASSIGN_OR_RETURN(const bool add_prefix_space, BoolOr(json, "add_prefix_space", true, where));
  if (!add_prefix_space) {
    if (FindField(json, "prepend_scheme") != nullptr && settings.scheme != Metaspace::kNever) {
      return InvalidError(where, ".add_prefix_space is false, but prepend_scheme is \"", scheme, "\"");
    }
    settings.scheme = Metaspace::kNever;
  }
  return settings;
}

}  // namespace moe
