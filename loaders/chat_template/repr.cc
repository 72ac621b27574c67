// str() and repr().
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "loaders/chat_template/format.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

// Writes the repr of a value, all of it with one provenance.
class ReprWriter {
 public:
  ReprWriter(Runtime& runtime, bool trusted, Text* out) : rt_(runtime), trusted_(trusted), out_(out) {}

  void Write(const Value& v, int depth) {
    if (!rt_.Step()) return;
    if (depth > rt_.limits().value_depth) {
      rt_.Fail("values are nested deeper than ", rt_.limits().value_depth, " levels (limit on depth)");
      return;
    }
    switch (v.kind()) {
      case Kind::kUndefined:
        return Put("Undefined");
      case Kind::kNone:
        return Put("None");
      case Kind::kBool:
        return Put(v.boolean() ? "True" : "False");
      case Kind::kInt:
        return Put(std::to_string(v.integer()));
      case Kind::kBigInt:
        return Put(std::to_string(v.big_integer()));
      case Kind::kFloat:
        return Put(FloatRepr(v.number()));
      case Kind::kString:
        return WriteString(v.text());
      case Kind::kList:
        return WriteList(v.list(), depth);
      case Kind::kDict:
        return WriteDict(v.dict(), depth);
      case Kind::kObject:
        return WriteObject(v, depth);
    }
  }

 private:
  void Put(std::string_view text) { out_->Append(text, trusted_); }

  void WriteString(std::string_view text) {
    if (!rt_.Process(4 * text.size())) return;
    const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
    const char quote = double_quotes ? '"' : '\'';
    std::string line(1, quote);
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint p = DecodeAt(text, pos);
      if (p.value == static_cast<uint32_t>(quote) || p.value == '\\') {
        line += {'\\', static_cast<char>(p.value)};
      } else if (p.value == '\n') {
        line += "\\n";
      } else if (p.value == '\r') {
        line += "\\r";
      } else if (p.value == '\t') {
        line += "\\t";
      } else if (IsPrintable(p.value)) {
        line += text.substr(pos, p.bytes);
      } else {
        char escape[16];
        const char* form = p.value < 0x100 ? "\\x%02x" : p.value < 0x10000 ? "\\u%04x" : "\\U%08x";
        std::snprintf(escape, sizeof(escape), form, p.value);
        line += escape;
      }
      pos += p.bytes;
    }
    line += quote;
    Put(line);
  }

  void WriteList(const ListObject& list, int depth) {
    if (list.kind == ListKind::kGenerator) return Put("<generator object>");
    if (list.kind == ListKind::kRange) return Put(list.label);
    if (list.kind == ListKind::kView) Put(Cat(list.label, "("));
    const bool tuple = list.kind == ListKind::kTuple;
    Put(tuple ? "(" : "[");
    for (size_t i = 0; i < list.items.size() && rt_.ok(); ++i) {
      if (i > 0) Put(", ");
      Write(list.items[i], depth + 1);
    }
    Put(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
    if (list.kind == ListKind::kView) Put(")");
  }

  void WriteDict(const DictObject& dict, int depth) {
    Put("{");
    for (size_t i = 0; i < dict.items.size() && rt_.ok(); ++i) {
      if (i > 0) Put(", ");
      Write(dict.items[i].first, depth + 1);
      Put(": ");
      Write(dict.items[i].second, depth + 1);
    }
    Put("}");
  }

  void WriteObject(const Value& v, int depth) {
    Put("<");
    Put(v.object().type_name());
    if (const auto* names = v.As<Namespace>()) {
      Put(" ");
      WriteDict(names->attributes(), depth + 1);
    }
    Put(">");
  }

  Runtime& rt_;
  bool trusted_;
  Text* out_;
};

// A namespace prints what it holds, so it is trusted as far as that is.
bool ReprTrusted(Runtime& rt, const Value& v) {
  if (const auto* names = v.As<Namespace>()) {
    for (const auto& item : names->attributes().items) {
      if (item.second.kind() == Kind::kObject || !AllTrusted(rt, item.second)) return false;
    }
    return true;
  }
  return AllTrusted(rt, v);
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    char tail[16];
    std::snprintf(tail, sizeof(tail), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." + digits.substr(exponent + 1);
}

void AppendStr(Runtime& rt, const Value& v, Text* out) {
  if (!rt.Step()) return;
  switch (v.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kString:
      return out->Append(v.string());
    case Kind::kList:
    case Kind::kDict:
    case Kind::kObject:
      return ReprWriter(rt, ReprTrusted(rt, v), out).Write(v, 0);
    default:
      return ReprWriter(rt, v.trusted(), out).Write(v, 0);
  }
}

Value ToStr(Runtime& rt, const Value& v) {
  if (v.IsString()) return v;
  Text out(rt);
  AppendStr(rt, v, &out);
  return out.Finish();
}

void AppendRepr(Runtime& rt, const Value& v, Text* out) {
  ReprWriter(rt, ReprTrusted(rt, v), out).Write(v, 0);
}

}  // namespace moe::chat
