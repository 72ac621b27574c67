// The % operator of strings: printf-style formatting.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "loaders/chat_template/format.h"
#include "loaders/chat_template/unicode.h"

namespace moe::chat {
namespace {

constexpr int kMaxWidth = 100'000;

struct Conversion {
  bool minus = false, plus = false, space = false, zero = false, alternate = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Walks the format and takes the values one after the other.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : rt_(runtime), format_(format), text_(format.text()), values_(values), out_(runtime) {}

  Value Run() {
    size_t literal = 0;
    while (pos_ < text_.size() && rt_.Step()) {
      const size_t percent = text_.find('%', pos_);
      if (percent == std::string_view::npos) break;
      out_.AppendSlice(format_.string(), literal, percent);
      pos_ = percent + 1;
      Convert();
      literal = pos_;
    }
    out_.AppendSlice(format_.string(), literal, text_.size());
    const bool left_over = IsTuple() ? next_ < values_.list().items.size() : !values_.IsDict() && next_ == 0;
    if (left_over) rt_.Fail("not all arguments converted during string formatting");
    return out_.Finish();
  }

 private:
  bool IsTuple() const { return values_.IsList() && values_.list().kind == ListKind::kTuple; }

  Value Next() {
    if (IsTuple()) {
      if (next_ < values_.list().items.size()) return values_.list().items[next_++];
    } else if (next_++ == 0) {
      return values_;
    }
    return rt_.Fail("not enough arguments for format string");
  }

  int Number() {
    if (pos_ < text_.size() && text_[pos_] == '*') {
      ++pos_;
      const Value v = Next();
      if (!v.IsInt()) rt_.Fail("* wants int");
      return v.IsInt() && std::abs(v.integer()) <= kMaxWidth ? static_cast<int>(v.integer()) : 0;
    }
    int n = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      n = n * 10 + (text_[pos_++] - '0');
      if (n > kMaxWidth) {
        rt_.Fail("a width in a format is over ", kMaxWidth);
        return 0;
      }
    }
    return n;
  }

  void Convert() {
    Value value;
    bool has_value = false;
    if (pos_ < text_.size() && text_[pos_] == '(') {
      const size_t close = text_.find(')', pos_);
      if (close == std::string_view::npos) return Bad("incomplete format key");
      if (!values_.IsDict()) return Bad("format requires a mapping");
      const Value* found = values_.dict().Find(text_.substr(pos_ + 1, close - pos_ - 1));
      if (found == nullptr) return Bad("a key of the format is not in the mapping");
      value = *found;
      has_value = true;
      pos_ = close + 1;
    }
    Conversion c;
    for (; pos_ < text_.size(); ++pos_) {
      const char flag = text_[pos_];
      if (flag == '-')
        c.minus = true;
      else if (flag == '+')
        c.plus = true;
      else if (flag == ' ')
        c.space = true;
      else if (flag == '0')
        c.zero = true;
      else if (flag == '#')
        c.alternate = true;
      else
        break;
    }
    c.width = Number();
    if (c.width < 0) {
      c.minus = true;
      c.width = -c.width;
    }
    if (pos_ < text_.size() && text_[pos_] == '.') {
      ++pos_;
      c.precision = std::max(0, Number());
    }
    while (pos_ < text_.size() && (text_[pos_] == 'l' || text_[pos_] == 'h' || text_[pos_] == 'L')) ++pos_;
    if (pos_ >= text_.size()) return Bad("incomplete format");
    c.type = text_[pos_++];
    if (c.type == '%') return out_.Append("%", format_.trusted());
    if (!has_value) value = Next();
    if (rt_.ok()) AppendConverted(c, value);
  }

  void Bad(std::string_view why) {
    rt_.Fail(why);
    pos_ = text_.size();
  }

  void AppendConverted(const Conversion& c, const Value& v) {
    switch (c.type) {
      case 's':
      case 'r': {
        Text text(rt_);
        c.type == 's' ? AppendStr(rt_, v, &text) : AppendRepr(rt_, v, &text);
        if (c.precision >= 0) text.Truncate(OffsetOf(text.str(), static_cast<size_t>(c.precision)));
        const int length = static_cast<int>(CountCodePoints(text.str()));
        if (!c.minus) Pad(c.width - length);
        const Value done = text.Finish();
        out_.Append(done.string());
        if (c.minus) Pad(c.width - length);
        return;
      }
      case 'c': {
        std::string one;
        if (v.IsInt() && v.integer() >= 0 && v.integer() <= 0x10FFFF) {
          AppendUtf8(static_cast<uint32_t>(v.integer()), &one);
        } else if (v.IsString() && CountCodePoints(v.text()) == 1) {
          one = v.text();
        } else {
          return Bad("%c requires int or char");
        }
        return AppendNumber(c, "", one, v.trusted());
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return AppendInt(c, v);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!v.IsNumber()) return Bad("must be real number");
        if (c.precision > 1000) return Bad("precision too big");
        return AppendSigned(c, FormatFloat(v.number(), c.type, c.precision < 0 ? 6 : c.precision, c.alternate), v);
      }
      default:
        return Bad("unsupported format character");
    }
  }

  void AppendInt(const Conversion& c, const Value& v) {
    if (!v.IsNumber() || (v.kind() == Kind::kFloat && c.type != 'd' && c.type != 'i' && c.type != 'u')) {
      return Bad(Cat("%", std::string(1, c.type), " format: a real number is required, not ", TypeName(v)));
    }
    if (v.kind() == Kind::kFloat && !(std::abs(v.number()) < 9e18)) return Bad("cannot convert float to integer");
    const int64_t n = v.IsInt() ? v.integer() : static_cast<int64_t>(v.number());
    const uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
    char buffer[32];
    const char* form = c.type == 'x' ? "%lx" : c.type == 'X' ? "%lX" : c.type == 'o' ? "%lo" : "%lu";
    std::snprintf(buffer, sizeof(buffer), form, static_cast<unsigned long>(magnitude));
    std::string digits = buffer;
    if (c.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<size_t>(c.precision) - digits.size(), '0');
    }
    if (c.alternate && c.type != 'd' && c.type != 'i' && c.type != 'u') digits = std::string("0") + c.type + digits;
    AppendSigned(c, (n < 0 ? "-" : "") + digits, v);
  }

  void AppendSigned(const Conversion& c, std::string text, const Value& v) {
    std::string sign;
    if (!text.empty() && text[0] == '-') {
      sign = "-";
      text.erase(0, 1);
    } else if (c.plus) {
      sign = "+";
    } else if (c.space) {
      sign = " ";
    }
    AppendNumber(c, sign, text, v.trusted());
  }

  void AppendNumber(const Conversion& c, const std::string& sign, const std::string& body, bool trusted) {
    const int padding = c.width - static_cast<int>(sign.size() + CountCodePoints(body));
    if (!c.minus && !c.zero) Pad(padding);
    out_.Append(sign, trusted);
    if (!c.minus && c.zero && padding > 0) out_.Append(std::string(static_cast<size_t>(padding), '0'), trusted);
    out_.Append(body, trusted);
    if (c.minus) Pad(padding);
  }

  void Pad(int count) {
    if (count > 0) out_.Append(std::string(static_cast<size_t>(count), ' '), format_.trusted());
  }

  Runtime& rt_;
  const Value& format_;
  std::string_view text_;
  const Value& values_;
  Text out_;
  size_t pos_ = 0;
  size_t next_ = 0;
};

}  // namespace

Value FormatPercent(Runtime& rt, const Value& format, const Value& values) {
  return PercentFormatter(rt, format, values).Run();
}

}  // namespace moe::chat
