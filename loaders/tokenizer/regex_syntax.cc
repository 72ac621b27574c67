#include "loaders/tokenizer/regex_syntax.h"

#include <algorithm>
#include <vector>

namespace moe {
namespace {

constexpr int kMaxClassDepth = 8;

// The property White_Space as class members. PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaceMembers =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordMembers = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexMembers = "0-9a-fA-F";

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  StatusOr<std::string> Run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '(') {
        MOE_RETURN_IF_ERROR(OpenGroup());
      } else if (c == ')') {
        ++pos_;
        out_ += ')';
        atom_ = std::string::npos;
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
      } else if (c == '[') {
        const size_t start = out_.size();
        MOE_ASSIGN_OR_RETURN(const std::string class_text, ReadClass());
        out_ += class_text;
        atom_ = start;
      } else if (c == '\\') {
        const size_t start = out_.size();
        MOE_RETURN_IF_ERROR(Escape());
        atom_ = start;
      } else if (c == '{' && Interval()) {
        continue;
      } else {
        if (!(c == '*' || c == '+' || c == '?' || c == '|') && (static_cast<unsigned char>(c) & 0xC0) != 0x80) {
          atom_ = out_.size();
        }
        out_ += c;
        ++pos_;
      }
    }
    return out_;
  }

 private:
  bool At(std::string_view text) const { return in_.substr(pos_, text.size()) == text; }

  Status OpenGroup() {
    if (At("(*")) return UnsupportedError("the construct \"(*\"");
    groups_.push_back(out_.size());
    if (!At("(?")) {
      out_ += '(';
      ++pos_;
      return absl::OkStatus();
    }
    for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!At(plain)) continue;
      out_ += plain;
      pos_ += plain.size();
      return absl::OkStatus();
    }
    return OptionGroup();
  }

  // (?i), (?i:…), (?m-i:…). What Oniguruma calls m ("dot matches newline") is s in PCRE2.
  Status OptionGroup() {
    std::string options = "(?";
    size_t i = pos_ + 2;
    for (; i < in_.size() && in_[i] != ':' && in_[i] != ')'; ++i) {
      const char option = in_[i];
      if (option != 'i' && option != 'm' && option != '-') {
        return UnsupportedError("the construct \"", in_.substr(pos_, i - pos_ + 1), "\"");
      }
      options += option == 'm' ? 's' : option;
    }
    if (i == in_.size()) return UnsupportedError("the unfinished construct \"", in_.substr(pos_), "\"");
    if (in_[i] == ')') groups_.pop_back();
    out_ += options + in_[i];
    pos_ = i + 1;
    return absl::OkStatus();
  }

  // {n,m}. Followed by +, PCRE2 would make it possessive where Oniguruma repeats the whole. Returns false, and reads
  // nothing, where the brace is an ordinary character.
  bool Interval() {
    size_t i = pos_ + 1;
    std::string low, high;
    bool comma = false;
    while (i < in_.size() && IsDigit(in_[i])) low += in_[i++];
    if (i < in_.size() && in_[i] == ',') {
      comma = true;
      ++i;
      while (i < in_.size() && IsDigit(in_[i])) high += in_[i++];
    }
    if (i >= in_.size() || in_[i] != '}' || (low.empty() && high.empty())) return false;
    const std::string text = Cat("{", low.empty() ? "0" : low, comma ? "," : "", high, "}");
    pos_ = i + 1;
    out_ += text;
    if (pos_ < in_.size() && in_[pos_] == '+' && atom_ != std::string::npos) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
    return true;
  }

  // A backslash and what follows, outside a class.
  Status Escape() {
    if (pos_ + 1 >= in_.size()) return UnsupportedError("a backslash at the end");
    const char c = in_[pos_ + 1];
    const auto take = [&](std::string_view text) {
      out_ += text;
      pos_ += 2;
      return absl::OkStatus();
    };
    switch (c) {
      case 's':
        return take(Cat("[", kSpaceMembers, "]"));
      case 'S':
        return take(Cat("[^", kSpaceMembers, "]"));
      case 'w':
        return take(Cat("[", kWordMembers, "]"));
      case 'W':
        return take(Cat("[^", kWordMembers, "]"));
      case 'h':
        return take(Cat("[", kHexMembers, "]"));
      case 'H':
        return take(Cat("[^", kHexMembers, "]"));
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'R':
      case 'X':
      case 'b':
      case 'B':
        return take(in_.substr(pos_, 2));
      default: {
        MOE_ASSIGN_OR_RETURN(const std::string member, ClassEscape());
        out_ += member;
        return absl::OkStatus();
      }
    }
  }

  // The escapes that mean the same inside and outside a class.
  StatusOr<std::string> ClassEscape() {
    const char c = in_[pos_ + 1];
    const auto take = [&](std::string text) {
      pos_ += 2;
      return text;
    };
    if (c == 'p' || c == 'P') return Property();
    if (c == 'd') return take(R"(\p{Nd})");
    if (c == 'D') return take(R"(\P{Nd})");
    if (c == 'v') return take(R"(\x0b)");
    if (c == 'u') {
      const std::string_view digits = in_.substr(pos_ + 2, 4);
      if (digits.size() != 4) return UnsupportedError("an unfinished \\u");
      pos_ += 6;
      return Cat(R"(\x{)", digits, "}");
    }
    if (std::string_view("nrtfaex").find(c) != std::string_view::npos) return take(std::string(in_.substr(pos_, 2)));
    if (IsLetter(c) || IsDigit(c)) return UnsupportedError("the escape \"\\", c, "\"");
    if (static_cast<unsigned char>(c) >= 0x80) {  // An escaped character outside ASCII is that character.
      pos_ += 1;
      return std::string();
    }
    return take(std::string(in_.substr(pos_, 2)));
  }

  // \p{L} stays; a script by its bare name means "script extensions" in PCRE2 and needs its prefix.
  StatusOr<std::string> Property() {
    const size_t close = in_.find('}', pos_);
    if (pos_ + 2 >= in_.size() || in_[pos_ + 2] != '{' || close == std::string_view::npos) {
      return UnsupportedError("the escape \"", in_.substr(pos_, 3), "\"");
    }
    const bool negated_escape = in_[pos_ + 1] == 'P';
    std::string_view name = in_.substr(pos_ + 3, close - pos_ - 3);
    bool negated = negated_escape;
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    pos_ = close + 1;
    static constexpr std::string_view kLongNames[][2] = {{"Letter", "L"},
                                                         {"Mark", "M"},
                                                         {"Number", "N"},
                                                         {"Punctuation", "P"},
                                                         {"Punct", "P"},
                                                         {"Symbol", "S"},
                                                         {"Separator", "Z"},
                                                         {"Other", "C"},
                                                         {"Digit", "Nd"},
                                                         {"Alpha", "Alphabetic"},
                                                         {"Upper", "Uppercase"},
                                                         {"Lower", "Lowercase"},
                                                         {"Space", "White_Space"},
                                                         {"White_Space", "White_Space"},
                                                         {"Alphabetic", "Alphabetic"},
                                                         {"Uppercase", "Uppercase"},
                                                         {"Lowercase", "Lowercase"},
                                                         {"Any", "Any"},
                                                         {"Emoji", "Emoji"},
                                                         {"Extended_Pictographic", "Extended_Pictographic"}};
    std::string target = name.size() <= 2 ? std::string(name) : Cat("sc:", name);
    for (const auto& entry : kLongNames) {
      if (entry[0] == name) target = std::string(entry[1]);
    }
    return Cat(negated ? R"(\P{)" : R"(\p{)", target, "}");
  }

  // A class as one piece of PCRE2. `[A&&B]` becomes `(?:(?=[B])[A])`.
  StatusOr<std::string> ReadClass() {
    std::vector<std::string> parts;
    bool negated = false;
    MOE_RETURN_IF_ERROR(ReadClassParts(0, &negated, &parts));
    const std::string open = negated ? "[^" : "[";
    if (parts.size() == 1) return Cat(open, parts[0], "]");
    if (negated) return UnsupportedError("a negated class with &&");
    std::string text = "(?:";
    for (size_t i = 1; i < parts.size(); ++i) {
      // A part that is itself one negated class was kept with its own brackets.
      text += parts[i].rfind("[^", 0) == 0 ? Cat("(?=", parts[i], ")") : Cat("(?=[", parts[i], "])");
    }
    return Cat(text, "[", parts[0], "])");
  }

  // Reads from '[' to the matching ']'. Each part is the members between two `&&`.
  Status ReadClassParts(int depth, bool* negated, std::vector<std::string>* parts) {
    if (depth > kMaxClassDepth) return UnsupportedError("classes nested too deeply");
    ++pos_;
    *negated = pos_ < in_.size() && in_[pos_] == '^';
    if (*negated) ++pos_;
    std::string members;
    bool first = true;
    for (; pos_ < in_.size(); first = false) {
      const char c = in_[pos_];
      if (c == ']' && !first) {
        ++pos_;
        parts->push_back(members);
        return absl::OkStatus();
      }
      if (At("&&")) {
        pos_ += 2;
        parts->push_back(std::move(members));
        members.clear();
      } else if (At("[:")) {
        const size_t close = in_.find(":]", pos_);
        if (close == std::string_view::npos) return UnsupportedError("an unfinished [: :]");
        members += in_.substr(pos_, close + 2 - pos_);
        pos_ = close + 2;
      } else if (c == '[') {
        MOE_RETURN_IF_ERROR(NestedClass(depth, !parts->empty(), &members));
      } else if (c == '\\') {
        MOE_RETURN_IF_ERROR(MemberEscape(&members));
      } else {
        if (c == ']') members += '\\';
        members += c;
        ++pos_;
      }
    }
    return UnsupportedError("an unfinished character class");
  }

  Status NestedClass(int depth, bool after_intersection, std::string* members) {
    bool negated = false;
    std::vector<std::string> inner;
    MOE_RETURN_IF_ERROR(ReadClassParts(depth + 1, &negated, &inner));
    if (inner.size() != 1) return UnsupportedError("&& in a nested class");
    if (!negated) {
      *members += inner[0];
      return absl::OkStatus();
    }
    const bool alone = members->empty() && (At("]") || At("&&"));
    if (!alone || !after_intersection) return UnsupportedError("a negated class inside a class");
    *members = Cat("[^", inner[0], "]");
    return absl::OkStatus();
  }

  Status MemberEscape(std::string* members) {
    if (pos_ + 1 >= in_.size()) return UnsupportedError("an unfinished character class");
    const char c = in_[pos_ + 1];
    std::string_view replacement;
    if (c == 's') replacement = kSpaceMembers;
    if (c == 'S') replacement = R"(\P{White_Space})";
    if (c == 'w') replacement = kWordMembers;
    if (c == 'h') replacement = kHexMembers;
    if (c == 'b') replacement = R"(\x08)";
    if (!replacement.empty()) {
      *members += replacement;
      pos_ += 2;
      return absl::OkStatus();
    }
    MOE_ASSIGN_OR_RETURN(const std::string member, ClassEscape());
    *members += member;
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = std::string::npos;  // Where in out_ the last atom begins.
  std::vector<size_t> groups_;       // Where in out_ each open group begins.
};

}  // namespace

StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  return Translator(pattern).Run();
}

std::string EscapeRegex(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}-#&~ /").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace moe
