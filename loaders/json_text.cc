#include "loaders/json_text.h"

#include <vector>

#include "parallel/base/log.h"

namespace moe {
namespace {

using nlohmann::json;

// Builds the document event by event. Unlike json::parse with a callback it knows the depth before a value is nested
// and sees both of two equal names.
class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  DocumentBuilder(std::string file, int max_depth) : file_(std::move(file)), max_depth_(max_depth) {}

  bool null() override { return Add(json(nullptr)); }
  bool boolean(bool value) override { return Add(json(value)); }
  bool number_integer(number_integer_t value) override { return Add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Add(json(value)); }
  bool string(string_t& value) override { return Add(json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      error_ = InvalidError(file_, ": duplicate name ", Quoted(name));
      return false;
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = CorruptError(file_, ": broken JSON: ", ShortParseError(error));
    return false;
  }

  const Status& error() const { return error_; }
  json& document() { return document_; }

 private:
  // Returns where the value now lives; valid until its parent grows, which happens only after it was closed.
  json* Place(json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool Add(json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(json value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      error_ = InvalidError(file_, ": JSON nested deeper than ", max_depth_, " levels");
      return false;
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string file_;
  int max_depth_;
  json document_;
  std::vector<json*> open_;
  std::string key_;
  Status error_;
};

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string ReplaceNonFinite(std::string_view text) {
  constexpr std::string_view kTokens[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    bool replaced = false;
    if ((c == '-' || c == 'I' || c == 'N') && (i == 0 || !IsWordByte(text[i - 1]))) {
      for (const std::string_view token : kTokens) {
        if (text.substr(i, token.size()) != token) continue;
        const size_t end = i + token.size();
        if (end < text.size() && IsWordByte(text[end])) continue;
        out += "{\"__float__\":\"";
        out += token;
        out += "\"}";
        i = end - 1;
        replaced = true;
        break;
      }
    }
    if (!replaced) out += c;
  }
  return out;
}

// Length of the UTF-8 sequence at the start of `text`, 0 if there is none. (Overlong forms and surrogates pass: this
// decides what a terminal can show, not what a tokenizer may read.)
size_t Utf8Length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// At most about `longest` bytes of `text`, control characters and bytes that are not UTF-8 escaped.
std::string Printable(std::string_view text, size_t longest) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  while (!text.empty() && shown.size() < longest) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      shown += EscapeControl(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return text.empty() ? shown : shown + "…";
}

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 200;
  return Cat('"', Printable(text, kLongest), '"');
}

std::string ShortParseError(const nlohmann::detail::exception& error) {
  std::string_view text = error.what();
  const size_t bracket = text.find("] ");
  if (bracket != std::string_view::npos) text.remove_prefix(bracket + 2);
  return Printable(text, 160);
}

StatusOr<json> ParseJson(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidError(file, ": ", text.size(), " bytes of JSON, more than the limit of ", limits.max_bytes);
  }
  std::string replaced;
  if (limits.non_finite && (text.find("Infinity") != text.npos || text.find("NaN") != text.npos)) {
    replaced = ReplaceNonFinite(text);
    text = replaced;
  }
  DocumentBuilder builder(file, limits.max_depth);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return builder.error().ok() ? CorruptError(file, ": broken JSON") : builder.error();
  }
  return std::move(builder.document());
}

}  // namespace moe
