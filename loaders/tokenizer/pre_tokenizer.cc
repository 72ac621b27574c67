#include "loaders/tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "loaders/tokenizer/byte_alphabet.h"
#include "loaders/tokenizer/metaspace.h"
#include "loaders/tokenizer/pattern.h"
#include "loaders/tokenizer/split_behavior.h"
#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

// The cut that byte-level tokenizers use when they do not bring their own.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  Status Apply(Pieces* pieces) const override {
    for (const auto& step : steps_) MOE_RETURN_IF_ERROR(step->Apply(pieces));
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(std::unique_ptr<Regex> regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  Status Apply(Pieces* pieces) const override {
    std::vector<Piece> result;
    std::vector<TextRange> matches;
    for (const Piece& piece : pieces->list) {
      MOE_RETURN_IF_ERROR(regex_->FindAll(pieces->View(piece), &matches));
      SplitPiece(piece, matches, behavior_, invert_, &result);
    }
    pieces->list = std::move(result);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Regex> regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Every character of a class is a delimiter of its own.
class CharacterPreTokenizer : public PreTokenizer {
 public:
  using IsDelimiter = bool (*)(char32_t);
  CharacterPreTokenizer(IsDelimiter is_delimiter, SplitBehavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}
  Status Apply(Pieces* pieces) const override {
    std::vector<Piece> result;
    std::vector<TextRange> matches;
    for (const Piece& piece : pieces->list) {
      const std::string_view text = pieces->View(piece);
      matches.clear();
      for (size_t pos = 0; pos < text.size();) {
        const size_t begin = pos;
        if (is_delimiter_(NextCodePoint(text, &pos))) matches.push_back({begin, pos});
      }
      SplitPiece(piece, matches, behavior_, /*invert=*/false, &result);
    }
    pieces->list = std::move(result);
    return absl::OkStatus();
  }

 private:
  IsDelimiter is_delimiter_;
  SplitBehavior behavior_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  // `split` may be null.
  ByteLevelPreTokenizer(bool add_prefix_space, std::unique_ptr<PreTokenizer> split)
      : add_prefix_space_(add_prefix_space), split_(std::move(split)) {}
  Status Apply(Pieces* pieces) const override {
    if (add_prefix_space_) AddPrefixSpace(pieces);
    if (split_ != nullptr) MOE_RETURN_IF_ERROR(split_->Apply(pieces));
    Pieces spelled;
    spelled.text.reserve(pieces->text.size() + pieces->text.size() / 4);
    spelled.list.reserve(pieces->list.size());
    for (const Piece& piece : pieces->list) {
      const size_t begin = spelled.text.size();
      AppendByteSpelling(pieces->View(piece), &spelled.text);
      spelled.list.push_back({begin, spelled.text.size(), piece.at_text_start});
    }
    *pieces = std::move(spelled);
    return absl::OkStatus();
  }

 private:
  static void AddPrefixSpace(Pieces* pieces) {
    Pieces spaced;
    spaced.text.reserve(pieces->text.size() + pieces->list.size());
    for (const Piece& piece : pieces->list) {
      const size_t begin = spaced.text.size();
      if (pieces->View(piece)[0] != ' ') spaced.text += ' ';
      spaced.text += pieces->View(piece);
      spaced.list.push_back({begin, spaced.text.size(), piece.at_text_start});
    }
    *pieces = std::move(spaced);
  }

  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> split_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(Metaspace settings) : settings_(std::move(settings)) {}
  Status Apply(Pieces* pieces) const override {
    Pieces result;
    result.text.reserve(pieces->text.size() + pieces->text.size() / 4);
    std::vector<TextRange> marks;
    for (const Piece& piece : pieces->list) {
      const Piece rewritten = Rewrite(pieces->View(piece), piece.at_text_start, &result);
      if (!settings_.split) {
        result.list.push_back(rewritten);
        continue;
      }
      const std::string_view text = result.View(rewritten);
      const std::string_view mark = settings_.replacement;
      marks.clear();
      for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + mark.size())) {
        marks.push_back({at, at + mark.size()});
      }
      SplitPiece(rewritten, marks, SplitBehavior::kMergedWithNext, /*invert=*/false, &result.list);
    }
    *pieces = std::move(result);
    return absl::OkStatus();
  }

 private:
  // Appends the text of a piece with spaces replaced and the prefix added.
  Piece Rewrite(std::string_view text, bool at_text_start, Pieces* result) const {
    const size_t begin = result->text.size();
    const std::string& mark = settings_.replacement;
    const bool has_mark = text[0] == ' ' || text.substr(0, mark.size()) == mark;
    const bool prepends =
        settings_.scheme == Metaspace::kAlways || (settings_.scheme == Metaspace::kFirst && at_text_start);
    if (prepends && !has_mark) result->text += mark;
    for (const char c : text) {
      if (c == ' ') {
        result->text += mark;
      } else {
        result->text += c;
      }
    }
    return {begin, result->text.size(), at_text_start};
  }

  Metaspace settings_;
};

StatusOr<std::unique_ptr<PreTokenizer>> MakeSplit(std::string_view pattern, SplitBehavior behavior, bool invert) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Regex> regex, Regex::Compile(pattern));
  return std::make_unique<SplitPreTokenizer>(std::move(regex), behavior, invert);
}

StatusOr<std::unique_ptr<PreTokenizer>> CreateSequence(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "pretokenizers", where));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string step_where = Cat(where, ".pretokenizers[", i, "]");
    MOE_ASSIGN_OR_RETURN(auto step, CreatePreTokenizer(&(*list)[i], step_where));
    if (step != nullptr) steps.push_back(std::move(step));
  }
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

StatusOr<std::unique_ptr<PreTokenizer>> CreateByteLevel(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const bool add_prefix_space, BoolOr(json, "add_prefix_space", true, where));
  MOE_ASSIGN_OR_RETURN(const bool use_regex, BoolOr(json, "use_regex", true, where));
  std::unique_ptr<PreTokenizer> split;
  if (use_regex) {
    MOE_ASSIGN_OR_RETURN(split, MakeSplit(kByteLevelPattern, SplitBehavior::kIsolated, false));
  }
  return std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, std::move(split));
}

StatusOr<std::unique_ptr<PreTokenizer>> CreateSplit(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(json, where));
  MOE_ASSIGN_OR_RETURN(const std::string name, RequireString(json, "behavior", where));
  MOE_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadSplitBehavior(name, where));
  MOE_ASSIGN_OR_RETURN(const bool invert, BoolOr(json, "invert", false, where));
  return std::make_unique<SplitPreTokenizer>(std::move(pattern.regex), behavior, invert);
}

// Cuts at white space, which disappears, then at each punctuation character.
std::unique_ptr<PreTokenizer> MakeBert() {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::make_unique<CharacterPreTokenizer>(&IsWhiteSpace, SplitBehavior::kRemoved));
  steps.push_back(std::make_unique<CharacterPreTokenizer>(&IsPunctuation, SplitBehavior::kIsolated));
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

}  // namespace

StatusOr<std::unique_ptr<PreTokenizer>> CreatePreTokenizer(const Json* json, std::string_view where) {
  if (json == nullptr || json->is_null()) return nullptr;
  if (!json->is_object()) return InvalidError(where, " is ", json->type_name(), ", expected an object");
  MOE_ASSIGN_OR_RETURN(const std::string type, RequireString(*json, "type", where));
  if (type == "Sequence") return CreateSequence(*json, where);
  if (type == "ByteLevel") return CreateByteLevel(*json, where);
  if (type == "Split") return CreateSplit(*json, where);
  if (type == "Metaspace") {
    MOE_ASSIGN_OR_RETURN(Metaspace settings, ReadMetaspace(*json, where));
    return std::make_unique<MetaspacePreTokenizer>(std::move(settings));
  }
  if (type == "Digits") {
    MOE_ASSIGN_OR_RETURN(const bool individual, BoolOr(*json, "individual_digits", false, where));
    return std::make_unique<CharacterPreTokenizer>(&IsNumber,
                                                   individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    MOE_ASSIGN_OR_RETURN(const std::string name, StringOr(*json, "behavior", "Isolated", where));
    MOE_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadSplitBehavior(name, where));
    return std::make_unique<CharacterPreTokenizer>(&IsPunctuation, behavior);
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterPreTokenizer>(&IsWhiteSpace, SplitBehavior::kRemoved);
  }
  if (type == "Whitespace") return MakeSplit(R"(\w+|[^\w\s]+)", SplitBehavior::kRemoved, /*invert=*/true);
  if (type == "BertPreTokenizer") return MakeBert();
  return UnsupportedError(where, ".type \"", type, "\"");
}

}  // namespace moe
