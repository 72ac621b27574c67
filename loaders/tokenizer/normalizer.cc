#include "loaders/tokenizer/normalizer.h"

#include <utility>
#include <vector>

#include "loaders/tokenizer/byte_alphabet.h"
#include "loaders/tokenizer/pattern.h"
#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  Status Apply(std::string* text) const override {
    for (const auto& step : steps_) MOE_RETURN_IF_ERROR(step->Apply(text));
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class NormalFormNormalizer : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}
  Status Apply(std::string* text) const override {
    *text = Normalize(form_, *text);
    return absl::OkStatus();
  }

 private:
  NormalForm form_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(std::string* text) const override {
    MOE_ASSIGN_OR_RETURN(*text, ReplaceAll(*pattern_.regex, *text, content_));
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Apply(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(std::string* text) const override {
    size_t begin = 0;
    size_t end = text->size();
    for (size_t next = 0; left_ && next < end; begin = next) {
      if (!IsWhiteSpace(NextCodePoint(*text, &next))) break;
    }
    while (right_ && end > begin && IsWhiteSpace(PreviousCodePoint(*text, end))) {
      do {
        --end;
      } while ((static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80);
    }
    *text = text->substr(begin, end - begin);
    return absl::OkStatus();
  }

 private:
  bool left_, right_;
};

// A change that looks at one character at a time: `append(c, out)` appends what becomes of c.
class CharacterNormalizer : public Normalizer {
 public:
  using Append = void (*)(char32_t c, std::string* out);
  explicit CharacterNormalizer(Append append) : append_(append) {}
  Status Apply(std::string* text) const override {
    std::string result;
    result.reserve(text->size());
    for (size_t pos = 0; pos < text->size();) append_(NextCodePoint(*text, &pos), &result);
    *text = std::move(result);
    return absl::OkStatus();
  }

 private:
  Append append_;
};

void AppendUnlessMark(char32_t c, std::string* out) {
  if (!IsMark(c)) AppendUtf8(c, out);
}

class ByteLevelNormalizer : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    std::string result;
    result.reserve(text->size() * 2);
    AppendByteSpelling(*text, &result);
    *text = std::move(result);
    return absl::OkStatus();
  }
};

StatusOr<std::unique_ptr<Normalizer>> CreateSequence(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "normalizers", where));
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string step_where = Cat(where, ".normalizers[", i, "]");
    MOE_ASSIGN_OR_RETURN(auto step, CreateNormalizer(&(*list)[i], step_where));
    if (step != nullptr) steps.push_back(std::move(step));
  }
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

}  // namespace

StatusOr<std::unique_ptr<Normalizer>> CreateNormalizer(const Json* json, std::string_view where) {
  if (json == nullptr || json->is_null()) return nullptr;
  if (!json->is_object()) return InvalidError(where, " is ", json->type_name(), ", expected an object");
  MOE_ASSIGN_OR_RETURN(const std::string type, RequireString(*json, "type", where));
  if (type == "Sequence") return CreateSequence(*json, where);
  if (type == "NFC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<CharacterNormalizer>(&AppendLowercase);
  if (type == "StripAccents") return std::make_unique<CharacterNormalizer>(&AppendUnlessMark);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Replace") {
    MOE_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(*json, where));
    MOE_ASSIGN_OR_RETURN(std::string content, RequireString(*json, "content", where));
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
  }
  if (type == "Prepend") {
    MOE_ASSIGN_OR_RETURN(std::string prefix, RequireString(*json, "prepend", where));
    return std::make_unique<PrependNormalizer>(std::move(prefix));
  }
  if (type == "Strip") {
    MOE_ASSIGN_OR_RETURN(const bool left, BoolOr(*json, "strip_left", true, where));
    MOE_ASSIGN_OR_RETURN(const bool right, BoolOr(*json, "strip_right", true, where));
    return std::make_unique<StripNormalizer>(left, right);
  }
  return UnsupportedError(where, ".type \"", type, "\"");
}

}  // namespace moe
