// str.format(): {} {0} {name} {a.b[c]!r:>8}. Attributes are those the sandbox shows to expressions.
#include <algorithm>
#include <cstdlib>

#include "loaders/chat_template/attributes.h"
#include "loaders/chat_template/format.h"

namespace moe::chat {
namespace {

bool AllDigits(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Args& args) : rt_(runtime), args_(args) {}

  // `depth`: a spec may hold fields of its own, one level deep.
  void Run(const Value& format, size_t begin, size_t end, int depth, Text* out) {
    const std::string_view text = format.text();
    size_t pos = begin;
    while (pos < end && rt_.Step()) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t next = std::min(text.find_first_of("{}", pos), end);
        out->AppendSlice(format.string(), pos, next);
        pos = next;
      } else if (pos + 1 < end && text[pos + 1] == c) {
        out->AppendSlice(format.string(), pos, pos + 1);
        pos += 2;
      } else if (c == '}') {
        rt_.Fail("Single '}' encountered in format string");
      } else {
        const size_t close = FieldEnd(text, pos + 1, end);
        if (close == std::string_view::npos) {
          rt_.Fail("expected '}' before end of string");
          return;
        }
        Field(format, pos + 1, close, depth, out);
        pos = close + 1;
      }
    }
  }

 private:
  static size_t FieldEnd(std::string_view text, size_t pos, size_t end) {
    int open = 1;
    for (; pos < end; ++pos) {
      if (text[pos] == '{') ++open;
      if (text[pos] == '}' && --open == 0) return pos;
    }
    return std::string_view::npos;
  }

  void Field(const Value& format, size_t begin, size_t end, int depth, Text* out) {
    const std::string_view field = format.text().substr(begin, end - begin);
    size_t name_end = 0;
    bool in_brackets = false;
    while (name_end < field.size() && (in_brackets || (field[name_end] != '!' && field[name_end] != ':'))) {
      if (field[name_end] == '[') in_brackets = true;
      if (field[name_end] == ']') in_brackets = false;
      ++name_end;
    }
    Value value = Lookup(field.substr(0, name_end));
    size_t pos = name_end;
    if (pos < field.size() && field[pos] == '!') {
      const char conversion = pos + 1 < field.size() ? field[pos + 1] : 0;
      if (conversion != 's' && conversion != 'r') {
        rt_.Fail("Unknown conversion specifier in format string");
        return;
      }
      Text text(rt_);
      conversion == 's' ? AppendStr(rt_, value, &text) : AppendRepr(rt_, value, &text);
      value = text.Finish();
      pos += 2;
    }
    if (pos < field.size() && field[pos] != ':') {
      rt_.Fail("expected ':' after conversion specifier");
      return;
    }
    if (pos >= field.size()) return AppendFormatted(rt_, value, "", out);
    if (depth > 1) {
      rt_.Fail("Max string recursion exceeded");
      return;
    }
    Text spec(rt_);
    Run(format, begin + pos + 1, end, depth + 1, &spec);
    if (rt_.ok()) AppendFormatted(rt_, value, spec.str(), out);
  }

  Value Lookup(std::string_view path) {
    const size_t head_end = std::min(path.find_first_of(".["), path.size());
    Value value = Argument(path.substr(0, head_end));
    size_t pos = head_end;
    while (pos < path.size() && rt_.Step()) {
      if (path[pos] == '.') {
        const size_t next = std::min(path.find_first_of(".[", pos + 1), path.size());
        value = GetAttribute(rt_, value, path.substr(pos + 1, next - pos - 1));
        pos = next;
      } else {
        const size_t close = path.find(']', pos);
        if (close == std::string_view::npos) return rt_.Fail("Missing ']' in format string");
        const std::string_view key = path.substr(pos + 1, close - pos - 1);
        value = GetItem(
            rt_, value,
            AllDigits(key) ? Value::Int(std::atoi(std::string(key).c_str())) : rt_.Copy(key, /*trusted=*/false));
        pos = close + 1;
      }
    }
    return value;
  }

  Value Argument(std::string_view name) {
    if (name.empty() || AllDigits(name)) {
      const size_t index = name.empty() ? next_++ : static_cast<size_t>(std::atoi(std::string(name).c_str()));
      if (index < args_.positional.size()) return args_.positional[index];
      return rt_.Fail("Replacement index ", index, " out of range for positional args tuple");
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    return rt_.Fail("format: no argument named '", name.substr(0, 100), "'");
  }

  Runtime& rt_;
  const Args& args_;
  size_t next_ = 0;
};

}  // namespace

Value FormatBraces(Runtime& rt, const Value& format, const Args& args) {
  Text out(rt);
  BraceFormatter(rt, args).Run(format, 0, format.text().size(), 0, &out);
  return out.Finish();
}

}  // namespace moe::chat
