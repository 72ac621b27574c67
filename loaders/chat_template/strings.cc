#include "loaders/chat_template/strings.h"

#include <algorithm>

#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

bool IsLineEnd(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

Value Strip(Runtime& rt, const Value& s, const std::string_view* chars, bool left, bool right) {
  const std::string_view text = s.text();
  const auto strips = [&](size_t pos, const CodePoint& p) {
    return chars == nullptr ? IsSpace(p.value) : chars->find(text.substr(pos, p.bytes)) != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  const size_t cost = chars == nullptr ? 4 : 4 + chars->size() / 8;  // A code point takes longer than copying a byte.
  while (left && begin < end && rt.Process(cost)) {
    const CodePoint p = DecodeAt(text, begin);
    if (!strips(begin, p)) break;
    begin += p.bytes;
  }
  while (right && begin < end && rt.Process(cost)) {
    const CodePoint p = DecodeBefore(text, end);
    if (!strips(end - p.bytes, p)) break;
    end -= p.bytes;
  }
  return rt.Slice(s, begin, end);
}

Value ReplaceText(Runtime& rt, const Value& s, const Value& from, const Value& to, int64_t count) {
  const std::string_view text = s.text(), needle = from.text();
  if (!rt.Process(text.size())) return Value();
  Text out(rt);
  size_t pos = 0;
  if (needle.empty()) {
    // Python puts the replacement before every character and at the end.
    for (bool at_end = false; !at_end && count != 0 && rt.Step(); --count) {
      out.Append(to.string());
      at_end = pos >= text.size();
      if (at_end) break;
      const size_t bytes = DecodeAt(text, pos).bytes;
      out.AppendSlice(s.string(), pos, pos + bytes);
      pos += bytes;
    }
  }
  while (!needle.empty() && count != 0 && rt.Step()) {
    const size_t found = text.find(needle, pos);
    if (found == std::string_view::npos) break;
    out.AppendSlice(s.string(), pos, found);
    out.Append(to.string());
    pos = found + needle.size();
    --count;
  }
  if (pos == 0 && out.size() == 0) return s;
  out.AppendSlice(s.string(), pos, text.size());
  return out.Finish();
}

std::vector<Value> SplitLines(Runtime& rt, const Value& s, bool keep_ends) {
  const std::string_view text = s.text();
  std::vector<Value> lines;
  if (!rt.Process(4 * text.size())) return lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size() && rt.ok();) {
    const CodePoint p = DecodeAt(text, pos);
    size_t next = pos + p.bytes;
    if (IsLineEnd(p.value)) {
      if (p.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      rt.Step();
      lines.push_back(rt.Slice(s, begin, keep_ends ? next : pos));
      begin = next;
    }
    pos = next;
  }
  if (begin < text.size()) lines.push_back(rt.Slice(s, begin, text.size()));
  return lines;
}

Value JoinStrings(Runtime& rt, const Value& separator, const std::vector<Value>& strings) {
  Text out(rt);
  for (size_t i = 0; i < strings.size() && rt.Step(); ++i) {
    if (i > 0) out.Append(separator.string());
    out.Append(strings[i].string());
  }
  return out.Finish();
}

Value UpperText(Runtime& rt, const Value& s) {
  if (!rt.Process(4 * s.text().size())) return Value();
  std::string upper;
  for (size_t pos = 0; pos < s.text().size();) {
    const CodePoint p = DecodeAt(s.text(), pos);
    AppendUpper(p.value, &upper);
    pos += p.bytes;
  }
  return rt.Copy(upper, s.trusted());
}

Value LowerText(Runtime& rt, const Value& s) {
  if (!rt.Process(4 * s.text().size())) return Value();
  return rt.Copy(Lower(s.text()), s.trusted());
}

Value Capitalize(Runtime& rt, const Value& s) {
  if (s.text().empty() || !rt.Process(4 * s.text().size())) return s;
  const CodePoint first = DecodeAt(s.text(), 0);
  std::string out;
  AppendTitle(first.value, &out);
  // The rest is lowered in its context, so that a final sigma is found.
  std::string head;
  AppendLower(first.value, &head);
  out += Lower(s.text()).substr(head.size());
  return rt.Copy(out, s.trusted());
}

Value Pad(Runtime& rt, const Value& s, int64_t width, std::string_view fill, bool left, bool right) {
  if (!rt.Process(s.text().size())) return Value();
  const auto length = static_cast<int64_t>(CountCodePoints(s.text()));
  if (width <= length) return s;
  const int64_t padding = width - length;
  // Python's center gives the odd character to the left when the width is odd.
  const int64_t before = left && right ? padding / 2 + (padding & width & 1) : left ? padding : 0;
  Text out(rt);
  out.AppendRepeated(fill, static_cast<size_t>(before), s.trusted());
  out.Append(s.string());
  out.AppendRepeated(fill, static_cast<size_t>(padding - before), s.trusted());
  return out.Finish();
}

}  // namespace moe::chat
