// The methods of str, but for those that make lists (string_split.cc).
#include <algorithm>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/string_split.h"
#include "loaders/chat_template/strings.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

Value StripMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool left, bool right) {
  const Arguments a(rt, name, args, {"chars"});
  const bool all_white = !a.Has(0) || a[0].IsNone();
  const std::string_view chars = a.Text(0, "");
  return rt.ok() ? Strip(rt, self, all_white ? nullptr : &chars, left, right) : Value();
}

Value DoStrip(Runtime& rt, const Value& self, Args& args) {
  return StripMethod(rt, self, args, "strip", true, true);
}
Value DoLeftStrip(Runtime& rt, const Value& self, Args& args) {
  return StripMethod(rt, self, args, "lstrip", true, false);
}
Value DoRightStrip(Runtime& rt, const Value& self, Args& args) {
  return StripMethod(rt, self, args, "rstrip", false, true);
}

// The byte range [start, end) of the optional code point bounds that many methods take; false for an empty one that
// lies outside, where not even "" is found.
bool Window(Runtime& rt, const Value& self, const Arguments& a, size_t first, size_t* begin, size_t* end) {
  *begin = 0;
  *end = self.text().size();
  if (!a.Has(first) && !a.Has(first + 1)) return true;
  const int64_t length = Length(rt, self);
  const auto clamp = [length](int64_t at) { return at < 0 ? std::max<int64_t>(at + length, 0) : at; };
  const int64_t from = clamp(a.Int(first, 0));
  const int64_t to = std::min(clamp(a.Int(first + 1, length)), length);
  if (from > to) return false;
  *begin = OffsetOf(self.text(), static_cast<size_t>(from));
  *end = OffsetOf(self.text(), static_cast<size_t>(to));
  return true;
}

Value AffixMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool at_end) {
  const Arguments a(rt, name, args, {"affix", "start", "end"}, 1);
  size_t begin = 0, end = 0;
  if (!rt.ok() || !Window(rt, self, a, 1, &begin, &end)) return Value::Bool(false);
  const std::string_view text = self.text().substr(begin, end - begin);
  const auto matches = [&](const Value& affix) {
    if (!affix.IsString()) {
      if (affix.IsUndefined()) rt.FailUndefined(affix);
      rt.Fail(name, " first arg must be str or a tuple of str, not ", TypeName(affix));
      return false;
    }
    const std::string_view x = affix.text();
    return x.size() <= text.size() && (at_end ? text.substr(text.size() - x.size()) : text.substr(0, x.size())) == x;
  };
  if (!a[0].IsList() || a[0].list().kind != ListKind::kTuple) return Value::Bool(matches(a[0]));
  for (const Value& affix : a[0].list().items) {
    if (matches(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

Value DoStartsWith(Runtime& rt, const Value& self, Args& args) {
  return AffixMethod(rt, self, args, "startswith", false);
}
Value DoEndsWith(Runtime& rt, const Value& self, Args& args) {
  return AffixMethod(rt, self, args, "endswith", true);
}

Value DoRemovePrefix(Runtime& rt, const Value& self, Args& args) {
  const std::string_view prefix = Arguments(rt, "removeprefix", args, {"prefix"}, 1).Text(0, "");
  const bool has = self.text().substr(0, prefix.size()) == prefix;
  return has ? rt.Slice(self, prefix.size(), self.text().size()) : self;
}

Value DoRemoveSuffix(Runtime& rt, const Value& self, Args& args) {
  const std::string_view suffix = Arguments(rt, "removesuffix", args, {"suffix"}, 1).Text(0, "");
  const size_t size = self.text().size();
  const bool has = suffix.size() <= size && self.text().substr(size - suffix.size()) == suffix;
  return has ? rt.Slice(self, 0, size - suffix.size()) : self;
}

Value FindMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool last, bool must) {
  const Arguments a(rt, name, args, {"sub", "start", "end"}, 1);
  const std::string_view needle = a.Text(0, "");
  size_t begin = 0, end = 0, found = std::string_view::npos;
  if (!rt.ok() || !rt.Process(self.text().size())) return Value();
  if (Window(rt, self, a, 1, &begin, &end)) {
    const std::string_view text = self.text().substr(begin, end - begin);
    found = last ? text.rfind(needle) : text.find(needle);
  }
  if (found != std::string_view::npos) {
    return Value::Int(static_cast<int64_t>(CountCodePoints(self.text().substr(0, begin + found))));
  }
  return must ? rt.Fail("substring not found") : Value::Int(-1);
}

Value DoFind(Runtime& rt, const Value& self, Args& args) {
  return FindMethod(rt, self, args, "find", false, false);
}
Value DoRightFind(Runtime& rt, const Value& self, Args& args) {
  return FindMethod(rt, self, args, "rfind", true, false);
}
Value DoIndex(Runtime& rt, const Value& self, Args& args) {
  return FindMethod(rt, self, args, "index", false, true);
}
Value DoRightIndex(Runtime& rt, const Value& self, Args& args) {
  return FindMethod(rt, self, args, "rindex", true, true);
}

Value DoCount(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "count", args, {"sub", "start", "end"}, 1);
  const std::string_view needle = a.Text(0, "");
  size_t begin = 0, end = 0;
  if (!rt.ok() || !rt.Process(self.text().size()) || !Window(rt, self, a, 1, &begin, &end)) return Value::Int(0);
  const std::string_view text = self.text().substr(begin, end - begin);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(text)) + 1);
  int64_t count = 0;
  for (size_t pos = text.find(needle); pos != std::string_view::npos; pos = text.find(needle, pos + needle.size())) {
    ++count;
  }
  return Value::Int(count);
}

Value DoReplace(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "replace", args, {"old", "new", "count"}, 2);
  a.Text(0, "");
  a.Text(1, "");
  const int64_t count = a.Int(2, -1);
  return rt.ok() && a[0].IsString() && a[1].IsString() ? ReplaceText(rt, self, a[0], a[1], count)
                                                       : rt.Fail("replace() takes two strings");
}

Value DoUpper(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "upper", args, {});
  return UpperText(rt, self);
}
Value DoLower(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "lower", args, {});
  return LowerText(rt, self);
}
Value DoCapitalize(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "capitalize", args, {});
  return Capitalize(rt, self);
}

// A letter after a non-letter is a capital, every other one is not.
Value MapByWord(Runtime& rt, const Value& self, bool swap) {
  if (!rt.Process(4 * self.text().size())) return Value();
  std::string out;
  bool in_word = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const CodePoint p = DecodeAt(self.text(), pos);
    const bool cased = IsUpper(p.value) || IsLower(p.value) || IsTitle(p.value);
    if (swap) {
      IsUpper(p.value) ? AppendLower(p.value, &out) : AppendUpper(p.value, &out);
    } else if (in_word) {
      AppendLower(p.value, &out);
    } else {
      AppendTitle(p.value, &out);
    }
    in_word = cased;
    pos += p.bytes;
  }
  return rt.Copy(out, self.trusted());
}

Value DoTitle(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "title", args, {});
  return MapByWord(rt, self, /*swap=*/false);
}
Value DoSwapCase(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "swapcase", args, {});
  return MapByWord(rt, self, /*swap=*/true);
}

template <bool (*kIs)(uint32_t)>
Value DoAll(Runtime& rt, const Value& self, Args&) {
  rt.Process(self.text().size());
  for (size_t pos = 0; pos < self.text().size();) {
    const CodePoint p = DecodeAt(self.text(), pos);
    if (!kIs(p.value)) return Value::Bool(false);
    pos += p.bytes;
  }
  return Value::Bool(!self.text().empty());
}

bool IsAlnum(uint32_t c) {
  return IsAlpha(c) || IsNumeric(c);
}
bool IsAscii(uint32_t c) {
  return c < 0x80;
}

// isupper, islower: at least one cased character, and none of the other case.
template <bool kUpper>
Value DoIsCase(Runtime& rt, const Value& self, Args&) {
  rt.Process(self.text().size());
  bool any = false;
  for (size_t pos = 0; pos < self.text().size();) {
    const CodePoint p = DecodeAt(self.text(), pos);
    if (IsTitle(p.value) || (kUpper ? IsLower(p.value) : IsUpper(p.value))) return Value::Bool(false);
    any = any || (kUpper ? IsUpper(p.value) : IsLower(p.value));
    pos += p.bytes;
  }
  return Value::Bool(any);
}

Value DoIsAscii(Runtime& rt, const Value& self, Args& args) {
  return self.text().empty() ? Value::Bool(true) : DoAll<IsAscii>(rt, self, args);
}

Value PadMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool left, bool right) {
  const Arguments a(rt, name, args, {"width", "fillchar"}, 1);
  const int64_t width = a.Int(0, 0);
  const std::string_view fill = a.Text(1, " ");
  if (rt.ok() && CountCodePoints(fill) != 1) rt.Fail("The fill character must be exactly one character long");
  return rt.ok() ? Pad(rt, self, width, fill, left, right) : Value();
}

Value DoCenter(Runtime& rt, const Value& self, Args& args) {
  return PadMethod(rt, self, args, "center", true, true);
}
Value DoLeftJust(Runtime& rt, const Value& self, Args& args) {
  return PadMethod(rt, self, args, "ljust", false, true);
}
Value DoRightJust(Runtime& rt, const Value& self, Args& args) {
  return PadMethod(rt, self, args, "rjust", true, false);
}

Value DoZeroFill(Runtime& rt, const Value& self, Args& args) {
  const int64_t width = Arguments(rt, "zfill", args, {"width"}, 1).Int(0, 0);
  const bool sign = !self.text().empty() && (self.text()[0] == '-' || self.text()[0] == '+');
  if (!sign) return Pad(rt, self, width, "0", true, false);
  Text out(rt);
  out.AppendSlice(self.string(), 0, 1);
  const Value digits = Pad(rt, rt.Slice(self, 1, self.text().size()), width - 1, "0", true, false);
  if (rt.ok()) out.Append(digits.string());
  return out.Finish();
}

Value DoFormat(Runtime& rt, const Value& self, Args& args) {
  return FormatBraces(rt, self, args);
}

struct Method {
  std::string_view name;
  NativeFunction function;
};

// In order of names, for the binary search.
constexpr Method kMethods[] = {
    {"capitalize", DoCapitalize},
    {"center", DoCenter},
    {"count", DoCount},
    {"endswith", DoEndsWith},
    {"find", DoFind},
    {"format", DoFormat},
    {"index", DoIndex},
    {"isalnum", DoAll<IsAlnum>},
    {"isalpha", DoAll<IsAlpha>},
    {"isascii", DoIsAscii},
    {"isdecimal", DoAll<IsDecimal>},
    {"isdigit", DoAll<IsDigit>},
    {"islower", DoIsCase<false>},
    {"isnumeric", DoAll<IsNumeric>},
    {"isspace", DoAll<IsSpace>},
    {"isupper", DoIsCase<true>},
    {"join", DoJoin},
    {"ljust", DoLeftJust},
    {"lower", DoLower},
    {"lstrip", DoLeftStrip},
    {"partition", DoPartition},
    {"removeprefix", DoRemovePrefix},
    {"removesuffix", DoRemoveSuffix},
    {"replace", DoReplace},
    {"rfind", DoRightFind},
    {"rindex", DoRightIndex},
    {"rjust", DoRightJust},
    {"rpartition", DoRightPartition},
    {"rsplit", DoRightSplit},
    {"rstrip", DoRightStrip},
    {"split", DoSplit},
    {"splitlines", DoSplitLines},
    {"startswith", DoStartsWith},
    {"strip", DoStrip},
    {"swapcase", DoSwapCase},
    {"title", DoTitle},
    {"upper", DoUpper},
    {"zfill", DoZeroFill},
};

}  // namespace

NativeFunction FindStringMethod(std::string_view name) {
  const auto it = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                   [](const Method& m, std::string_view n) { return m.name < n; });
  return it != std::end(kMethods) && it->name == name ? it->function : nullptr;
}

}  // namespace moe::chat
