// json.dumps(), which chat templates reach through the filter tojson.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, bool trusted, Text* out)
      : rt_(runtime), style_(style), trusted_(trusted), out_(out) {}

  void Write(const Value& v, int depth) {
    if (!rt_.Step()) return;
    if (depth > rt_.limits().value_depth) {
      rt_.Fail("values are nested deeper than ", rt_.limits().value_depth, " levels (limit on depth)");
      return;
    }
    switch (v.kind()) {
      case Kind::kString:
        return WriteString(v.text());
      case Kind::kDict:
        return WriteDict(v.dict(), depth);
      case Kind::kList:
        if (v.list().kind == ListKind::kList || v.list().kind == ListKind::kTuple) return WriteList(v.list(), depth);
        break;
      case Kind::kUndefined:
      case Kind::kObject:
        break;
      default:
        return Put(Scalar(v));
    }
    rt_.Fail("Object of type ", TypeName(v), " is not JSON serializable");
  }

 private:
  void Put(std::string_view text) { out_->Append(text, trusted_); }

  static std::string Scalar(const Value& v) {
    switch (v.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return v.boolean() ? "true" : "false";
      case Kind::kInt:
        return std::to_string(v.integer());
      case Kind::kBigInt:
        return std::to_string(v.big_integer());
      default:
        if (std::isnan(v.number())) return "NaN";
        if (std::isinf(v.number())) return v.number() < 0 ? "-Infinity" : "Infinity";
        return FloatRepr(v.number());
    }
  }

  void WriteString(std::string_view text) {
    if (!rt_.Process(2 * text.size())) return;
    std::string line = "\"";
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint p = DecodeAt(text, pos);
      if (p.value == '"' || p.value == '\\') {
        line += {'\\', static_cast<char>(p.value)};
      } else if (p.value < 0x20) {
        AppendControl(p.value, &line);
      } else if (p.value >= 0x7F && style_.ensure_ascii) {
        AppendEscape(p.value, &line);
      } else {
        line += text.substr(pos, p.bytes);
      }
      pos += p.bytes;
    }
    line += '"';
    Put(line);
  }

  static void AppendControl(uint32_t c, std::string* line) {
    constexpr std::string_view kFrom = "\b\f\n\r\t", kTo = "bfnrt";
    const size_t at = kFrom.find(static_cast<char>(c));
    if (at != std::string_view::npos) {
      *line += {'\\', kTo[at]};
    } else {
      AppendUnit(c, line);
    }
  }

  static void AppendUnit(uint32_t unit, std::string* line) {
    char buffer[8];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", unit & 0xFFFF);
    *line += buffer;
  }

  static void AppendEscape(uint32_t c, std::string* line) {
    if (c < 0x10000) return AppendUnit(c, line);
    AppendUnit(0xD800 + ((c - 0x10000) >> 10), line);
    AppendUnit(0xDC00 + ((c - 0x10000) & 0x3FF), line);
  }

  void NewLine(int depth) {
    if (!style_.indent.has_value()) return;
    Put("\n");
    for (int i = 0; i < depth; ++i) Put(*style_.indent);
  }

  void WriteList(const ListObject& list, int depth) {
    if (list.items.empty()) return Put("[]");
    Put("[");
    for (size_t i = 0; i < list.items.size() && rt_.ok(); ++i) {
      if (i > 0) Put(style_.item_separator);
      NewLine(depth + 1);
      Write(list.items[i], depth + 1);
    }
    NewLine(depth);
    Put("]");
  }

  void WriteDict(const DictObject& dict, int depth) {
    if (dict.items.empty()) return Put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [this](auto* a, auto* b) { return rt_.ok() && Order(rt_, a->first, b->first) < 0; });
    }
    Put("{");
    for (size_t i = 0; i < items.size() && rt_.ok(); ++i) {
      const auto& [key, value] = *items[i];
      if (i > 0) Put(style_.item_separator);
      NewLine(depth + 1);
      if (key.IsString()) {
        WriteString(key.text());
      } else if (key.IsNumber() || key.IsNone() || key.kind() == Kind::kBigInt) {
        Put(Cat('"', Scalar(key), '"'));
      } else {
        rt_.Fail("keys must be str, int, float, bool or None, not ", TypeName(key));
      }
      Put(style_.key_separator);
      Write(value, depth + 1);
    }
    NewLine(depth);
    Put("}");
  }

  Runtime& rt_;
  const JsonStyle& style_;
  bool trusted_;
  Text* out_;
};

}  // namespace

Value ToJson(Runtime& rt, const Value& v, const JsonStyle& style) {
  Text out(rt);
  JsonWriter(rt, style, AllTrusted(rt, v), &out).Write(v, 0);
  return out.Finish();
}

}  // namespace moe::chat
