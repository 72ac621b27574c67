#include "loaders/chat_template/string_split.h"

#include <algorithm>

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/operators.h"
#include "loaders/chat_template/strings.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

// Words between runs of white space, from the left. What is left over after `limit` words (<0: none) is the last item.
std::vector<Value> SplitSpace(Runtime& rt, const Value& s, int64_t limit) {
  const std::string_view text = s.text();
  std::vector<Value> words;
  size_t pos = 0;
  const auto skip = [&](bool space) {
    while (pos < text.size()) {
      const CodePoint p = DecodeAt(text, pos);
      if (IsSpace(p.value) != space) break;
      pos += p.bytes;
    }
  };
  while (rt.Step()) {
    skip(true);
    if (pos >= text.size()) break;
    const size_t begin = pos;
    if (limit-- == 0) {
      words.push_back(rt.Slice(s, begin, text.size()));
      break;
    }
    skip(false);
    words.push_back(rt.Slice(s, begin, pos));
  }
  return words;
}

std::vector<Value> RightSplitSpace(Runtime& rt, const Value& s, int64_t limit) {
  const std::string_view text = s.text();
  std::vector<Value> words;
  size_t end = text.size();
  const auto skip = [&](bool space) {
    while (end > 0) {
      const CodePoint p = DecodeBefore(text, end);
      if (IsSpace(p.value) != space) break;
      end -= p.bytes;
    }
  };
  while (rt.Step()) {
    skip(true);
    if (end == 0) break;
    const size_t word_end = end;
    if (limit-- == 0) {
      words.push_back(rt.Slice(s, 0, word_end));
      break;
    }
    skip(false);
    words.push_back(rt.Slice(s, end, word_end));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

Value SplitMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool right) {
  const Arguments a(rt, name, args, {"sep", "maxsplit"});
  const std::string_view separator = a.Text(0, "");
  int64_t limit = a.Int(1, -1);
  if (!rt.ok() || !rt.Process(self.text().size())) return Value();
  if (!a.Has(0) || a[0].IsNone()) {
    rt.Process(3 * self.text().size());  // Code points, not bytes.
    return rt.NewList(right ? RightSplitSpace(rt, self, limit) : SplitSpace(rt, self, limit));
  }
  if (separator.empty()) return rt.Fail("empty separator");
  const std::string_view text = self.text();
  std::vector<Value> parts;
  if (right) {
    size_t end = text.size();
    while (limit-- != 0 && end >= separator.size() && rt.Step()) {
      const size_t found = text.rfind(separator, end - separator.size());
      if (found == std::string_view::npos) break;
      parts.push_back(rt.Slice(self, found + separator.size(), end));
      end = found;
    }
    parts.push_back(rt.Slice(self, 0, end));
    std::reverse(parts.begin(), parts.end());
  } else {
    size_t begin = 0;
    while (limit-- != 0 && rt.Step()) {
      const size_t found = text.find(separator, begin);
      if (found == std::string_view::npos) break;
      parts.push_back(rt.Slice(self, begin, found));
      begin = found + separator.size();
    }
    parts.push_back(rt.Slice(self, begin, text.size()));
  }
  return rt.NewList(std::move(parts));
}

Value PartitionMethod(Runtime& rt, const Value& self, Args& args, std::string_view name, bool right) {
  const Arguments a(rt, name, args, {"sep"}, 1);
  const std::string_view separator = a.Text(0, "");
  if (!rt.ok() || !rt.Process(self.text().size())) return Value();
  if (separator.empty()) return rt.Fail("empty separator");
  const size_t size = self.text().size();
  const size_t at = right ? self.text().rfind(separator) : self.text().find(separator);
  const Value empty = rt.View("", true);
  if (at == std::string_view::npos) {
    return rt.NewTuple(right ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty});
  }
  // The middle is the text that was found, not the argument: what a user wrote must not turn into the template's.
  const size_t after = at + separator.size();
  return rt.NewTuple({rt.Slice(self, 0, at), rt.Slice(self, at, after), rt.Slice(self, after, size)});
}

}  // namespace

Value DoSplit(Runtime& rt, const Value& self, Args& args) {
  return SplitMethod(rt, self, args, "split", false);
}
Value DoRightSplit(Runtime& rt, const Value& self, Args& args) {
  return SplitMethod(rt, self, args, "rsplit", true);
}

Value DoSplitLines(Runtime& rt, const Value& self, Args& args) {
  const bool keep_ends = Arguments(rt, "splitlines", args, {"keepends"}).Bool(0, false);
  return rt.NewList(SplitLines(rt, self, keep_ends));
}

Value DoPartition(Runtime& rt, const Value& self, Args& args) {
  return PartitionMethod(rt, self, args, "partition", false);
}
Value DoRightPartition(Runtime& rt, const Value& self, Args& args) {
  return PartitionMethod(rt, self, args, "rpartition", true);
}

Value DoJoin(Runtime& rt, const Value& self, Args& args) {
  const Arguments a(rt, "join", args, {"iterable"}, 1);
  if (!rt.ok()) return Value();
  const std::vector<Value> items = Iterate(rt, a[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString()) {
      return rt.Fail("sequence item ", i, ": expected str instance, ", TypeName(items[i]), " found");
    }
  }
  return JoinStrings(rt, self, items);
}

}  // namespace moe::chat
