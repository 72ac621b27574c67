// Filters on text.
#include <algorithm>
#include <cstdio>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/builtins.h"
#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/strings.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

Value DoUpper(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "upper", args, {});
  return UpperText(rt, ToStr(rt, self));
}

Value DoLower(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "lower", args, {});
  return LowerText(rt, ToStr(rt, self));
}

Value DoCapitalize(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "capitalize", args, {});
  return Capitalize(rt, ToStr(rt, self));
}

// Unlike the method title(), the filter starts words after spaces, dashes and opening brackets only.
Value DoTitle(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "title", args, {});
  const Value s = ToStr(rt, self);
  if (!rt.Process(4 * s.text().size())) return Value();
  const auto separates = [](uint32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  const std::string_view text = s.text();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint first = DecodeAt(text, pos);
    const bool separator = separates(first.value);
    size_t end = pos + first.bytes;
    while (end < text.size() && separates(DecodeAt(text, end).value) == separator) end += DecodeAt(text, end).bytes;
    AppendUpper(first.value, &out);
    out += Lower(text.substr(pos + first.bytes, end - pos - first.bytes));
    pos = end;
  }
  return rt.Copy(out, s.trusted());
}

Value DoTrim(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "trim", args, {"chars"});
  const std::string_view chars = a.Text(0, "");
  return Strip(rt, ToStr(rt, self), a.Has(0) && !a[0].IsNone() ? &chars : nullptr, true, true);
}

Value DoCenter(Runtime& rt, const Value& self, Args& args) {
  const int64_t width = Arguments(rt, "center", args, {"width"}).Int(0, 80);
  return Pad(rt, ToStr(rt, self), width, " ", true, true);
}

Value DoReplace(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "replace", args, {"old", "new", "count"}, 2);
  const int64_t count = a.Int(2, -1);
  return rt.ok() ? ReplaceText(rt, ToStr(rt, self), ToStr(rt, a[0]), ToStr(rt, a[1]), count) : Value();
}

Value DoIndent(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "indent", args, {"width", "first", "blank"});
  if (self.IsUndefined()) return rt.FailUndefined(self);
  if (!self.IsString()) return rt.Fail("indent() needs a string, not ", TypeName(self));
  Value indention = a.ValueOr(0, Value::Int(4));
  if (!indention.IsString()) {
    const int64_t width = a.Int(0, 4);
    if (width > rt.limits().live_bytes) return rt.Fail("the indentation is too wide (limit on memory)");
    indention = rt.Copy(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  // Python appends a newline before it splits, so that a trailing one survives.
  std::vector<Value> lines = SplitLines(rt, self, false);
  const std::string_view text = self.text();
  const bool ended =
      text.empty() ||
      SplitLines(rt, rt.Slice(self, OffsetOf(text, CountCodePoints(text) - 1), text.size()), false)[0].text().empty();
  if (ended) lines.push_back(rt.View("", true));
  Text out(rt);
  for (size_t i = 0; i < lines.size() && rt.Step(); ++i) {
    if (i > 0) out.Append("\n", true);
    const bool indented = i == 0 ? a.Bool(1, false) : a.Bool(2, false) || !lines[i].text().empty();
    if (indented) out.Append(indention.string());
    out.Append(lines[i].string());
  }
  return out.Finish();
}

Value DoTruncate(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  Value s = ToStr(rt, self);
  const Value end = a.ValueOr(2, rt.View("...", true));
  if (!end.IsString()) return rt.Fail("truncate(): end must be a string");
  const int64_t length = a.Int(0, 255), leeway = a.Int(3, 5), end_length = Length(rt, end);
  if (length < end_length) return rt.Fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) return rt.Fail("expected leeway >= 0, got ", leeway);
  const int64_t size = Length(rt, s);
  if (size <= length || size - length <= leeway) return s;
  size_t cut = OffsetOf(s.text(), static_cast<size_t>(length - end_length));
  if (!a.Bool(1, false)) cut = std::min(cut, s.text().substr(0, cut).rfind(' '));
  Text out(rt);
  out.AppendSlice(s.string(), 0, cut);
  out.Append(end.string());
  return out.Finish();
}

Value DoWordCount(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "wordcount", args, {});
  const Value s = ToStr(rt, self);
  rt.Process(2 * s.text().size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < s.text().size();) {
    const CodePoint p = DecodeAt(s.text(), pos);
    const bool word = p.value == '_' || IsAlpha(p.value) || IsNumeric(p.value);
    count += word && !in_word ? 1 : 0;
    in_word = word;
    pos += p.bytes;
  }
  return Value::Int(count);
}

std::string UrlQuote(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "%%%02X", static_cast<unsigned char>(c));
      out += escape;
    }
  }
  return out;
}

Value DoUrlEncode(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "urlencode", args, {});
  if (!self.IsDict() && !self.IsList()) {
    const Value s = ToStr(rt, self);
    return rt.Process(4 * s.text().size()) ? rt.Copy(UrlQuote(s.text(), false), s.trusted()) : Value();
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (self.IsDict()) pairs = self.dict().items;
  for (const Value& item : self.IsList() ? Iterate(rt, self) : std::vector<Value>()) {
    const std::vector<Value> pair = Iterate(rt, item);
    if (pair.size() != 2) return rt.Fail("urlencode needs pairs of a key and a value");
    pairs.emplace_back(pair[0], pair[1]);
  }
  const bool trusted = AllTrusted(rt, self);
  Text out(rt);
  for (size_t i = 0; i < pairs.size() && rt.Step(); ++i) {
    const Value key = ToStr(rt, pairs[i].first), value = ToStr(rt, pairs[i].second);
    if (!rt.Process(4 * (key.text().size() + value.text().size()))) break;
    out.Append(Cat(i > 0 ? "&" : "", UrlQuote(key.text(), true), "=", UrlQuote(value.text(), true)), trusted);
  }
  return out.Finish();
}

Value DoEscape(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "escape", args, {});
  const Value s = ToStr(rt, self);
  const std::string_view text = s.text();
  Text out(rt);
  for (size_t pos = 0; pos < text.size() && rt.Step();) {
    const size_t special = std::min(text.find_first_of("&<>'\"", pos), text.size());
    out.AppendSlice(s.string(), pos, special);
    if (special < text.size()) {
      switch (text[special]) {
        case '&':
          out.Append("&amp;", s.trusted());
          break;
        case '<':
          out.Append("&lt;", s.trusted());
          break;
        case '>':
          out.Append("&gt;", s.trusted());
          break;
        case '"':
          out.Append("&#34;", s.trusted());
          break;
        default:
          out.Append("&#39;", s.trusted());
          break;
      }
    }
    pos = special + 1;
  }
  return out.Finish();
}

Value DoString(Runtime& rt, const Value& self, Args& args) {
  Arguments(rt, "string", args, {});
  return ToStr(rt, self);
}

Value DoFormat(Runtime& rt, const Value& self, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return rt.Fail("can't handle positional and keyword arguments at the same time");
  }
  const Value format = ToStr(rt, self);
  if (args.named.empty()) return FormatPercent(rt, format, rt.NewTuple(args.positional));
  DictObject* values = nullptr;
  const Value dict = rt.NewDict(&values);
  for (const auto& [name, value] : args.named) rt.Put(values, rt.View(name, true), value);
  return FormatPercent(rt, format, dict);
}

Value DoToJson(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = a.Bool(0, false);
  style.sort_keys = a.Bool(3, false);
  if (a.Has(1) && !a[1].IsNone()) {
    if (a[1].IsString()) {
      style.indent = std::string(a[1].text());
    } else {
      const int64_t width = a.Int(1, 0);
      if (width > 1000) return rt.Fail("tojson(): indent is over 1000");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = std::string(1, ',');
  }
  if (a.Has(2) && !a[2].IsNone()) {
    const std::vector<Value> separators = Iterate(rt, a[2]);
    if (separators.size() != 2 || !separators[0].IsString() || !separators[1].IsString()) {
      return rt.Fail("tojson(): separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return rt.ok() ? ToJson(rt, self, style) : Value();
}

constexpr Builtin kFilters[] = {
    {"capitalize", DoCapitalize}, {"center", DoCenter},       {"e", DoEscape},          {"escape", DoEscape},
    {"forceescape", DoEscape},    {"format", DoFormat},       {"indent", DoIndent},     {"lower", DoLower},
    {"replace", DoReplace},       {"safe", DoString},         {"string", DoString},     {"title", DoTitle},
    {"tojson", DoToJson},         {"trim", DoTrim},           {"truncate", DoTruncate}, {"upper", DoUpper},
    {"urlencode", DoUrlEncode},   {"wordcount", DoWordCount},
};

}  // namespace

NativeFunction FindTextFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace moe::chat
