#include "loaders/tokenizer/sentencepiece_normalizer.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loaders/tokenizer/byte_trie.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

// The greatest rule of the known maps makes 33 bytes of 3; see also ReplaceAll.
constexpr size_t kMaxGrowth = 16;
constexpr size_t kFreeGrowthBytes = size_t{64} << 10;

// Replaces the longest string that begins at a place, by the rules of a precompiled_charsmap: the size of a
// double-array trie (Darts-clone), the trie, then what its values point at, strings that end in a zero byte.
class CharacterMap {
 public:
  // Empty bytes: no rules.
  static StatusOr<CharacterMap> Create(std::string_view bytes, std::string_view where) {
    CharacterMap map;
    if (bytes.empty()) return map;
    const size_t trie_bytes = bytes.size() < 4 ? 0 : Word(bytes, 0);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
      return CorruptError(where, ": a trie of ", trie_bytes, " bytes in ", bytes.size(), ", expected a multiple of 4");
    }
    for (size_t i = 0; i < trie_bytes; i += 4) map.units_.push_back(Word(bytes, 4 + i));
    map.replacements_ = std::string(bytes.substr(4 + trie_bytes));
    if (!IsValidUtf8(map.replacements_)) return CorruptError(where, ": the replacements are not valid UTF-8");
    return map;
  }

  struct Match {
    size_t length = 0;  // 0: no rule applies.
    std::string_view replacement;
  };

  StatusOr<Match> Longest(std::string_view text) const {
    Match match;
    if (units_.empty()) return match;
    size_t replacement = 0;
    size_t node = Offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= units_.size() || (units_[node] & kLabelMask) != byte) break;
      const bool ends_rule = (units_[node] & kHasLeaf) != 0;
      node ^= Offset(units_[node]);
      if (!ends_rule) continue;
      if (node >= units_.size()) return Broken();
      match.length = i + 1;
      replacement = units_[node] & kValueMask;
    }
    if (match.length == 0) return match;
    const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    if (replacement >= replacements_.size() || !begins_character(replacements_[replacement])) return Broken();
    if (match.length < text.size() && !begins_character(text[match.length])) return Broken();
    match.replacement = std::string_view(replacements_).substr(replacement);
    match.replacement = match.replacement.substr(0, match.replacement.find('\0'));
    return match;
  }

 private:
  static constexpr uint32_t kHasLeaf = 1u << 8;
  static constexpr uint32_t kLabelMask = 1u << 31 | 0xFF;  // Bit 31: the unit is a value.
  static constexpr uint32_t kValueMask = ~(1u << 31);

  static uint32_t Word(std::string_view bytes, size_t at) {
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    return word;
  }
  static size_t Offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); }
  static Status Broken() {
    return CorruptError("the character map of the tokenizer's normalizer_spec points outside itself");
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& model, bool dummy_prefix, CharacterMap map)
      : map_(std::move(map)),
        space_(model.escape_whitespaces ? kSentencePieceSpace : std::string_view(" ")),
        collapses_(model.remove_extra_whitespaces),
        prefix_(dummy_prefix && model.add_dummy_prefix && !model.treat_whitespace_as_suffix),
        suffix_(model.add_dummy_prefix && model.treat_whitespace_as_suffix) {
    std::vector<std::pair<std::string_view, int32_t>> kept;
    for (const SentencePiece& piece : model.pieces) {
      if (piece.type == SentencePiece::kUserDefined) kept.emplace_back(piece.text, 0);
    }
    kept_.Build(std::move(kept));
  }

  Status Apply(std::string* text) const override {
    std::string_view rest = *text;
    while (collapses_ && !rest.empty()) {
      MOE_ASSIGN_OR_RETURN(const CharacterMap::Match first, Next(rest));
      if (first.replacement != " ") break;
      rest.remove_prefix(first.length);
    }
    if (rest.empty()) {
      text->clear();
      return absl::OkStatus();
    }
    std::string result;
    result.reserve(rest.size() + rest.size() / 4 + space_.size());
    if (prefix_) result += space_;
    bool behind_space = collapses_;
    while (!rest.empty()) {
      MOE_ASSIGN_OR_RETURN(const CharacterMap::Match next, Next(rest));
      rest.remove_prefix(next.length);
      std::string_view added = next.replacement;
      while (behind_space && added.starts_with(' ')) added.remove_prefix(1);
      if (added.empty()) continue;
      for (const char c : added) {
        if (c == ' ') {
          result += space_;
        } else {
          result += c;
        }
      }
      behind_space = collapses_ && added.ends_with(' ');
      if (result.size() > kMaxGrowth * text->size() + kFreeGrowthBytes) {
        return absl::ResourceExhaustedError(
            Cat("the tokenizer's normalizer_spec would make more than ", result.size(), " bytes of ", text->size()));
      }
    }
    while (collapses_ && result.ends_with(space_)) result.resize(result.size() - space_.size());
    if (suffix_) result += space_;
    *text = std::move(result);
    return absl::OkStatus();
  }

 private:
  // What the beginning of `text`, which is not empty, becomes.
  StatusOr<CharacterMap::Match> Next(std::string_view text) const {
    if (const size_t length = LongestKept(text); length > 0) return CharacterMap::Match{length, text.substr(0, length)};
    MOE_ASSIGN_OR_RETURN(const CharacterMap::Match match, map_.Longest(text));
    if (match.length > 0) return match;
    size_t length = 0;
    NextCodePoint(text, &length);
    return CharacterMap::Match{length, text.substr(0, length)};
  }

  size_t LongestKept(std::string_view text) const {
    size_t longest = 0;
    int32_t node = ByteTrie::kRoot;
    for (size_t i = 0; i < text.size() && !kept_.empty(); ++i) {
      node = kept_.Child(node, text[i]);
      if (node == ByteTrie::kNone) break;
      if (kept_.Value(node) != ByteTrie::kNone) longest = i + 1;
    }
    return longest;
  }

  ByteTrie kept_;  // User-defined pieces: no rule touches them.
  CharacterMap map_;
  std::string_view space_;
  bool collapses_;  // Runs of spaces become one, those at both ends nothing.
  bool prefix_;
  bool suffix_;
};

}  // namespace

StatusOr<std::unique_ptr<Normalizer>> CreateSentencePieceNormalizer(const SentencePieceFile& model, bool dummy_prefix,
                                                                    std::string_view where) {
  MOE_ASSIGN_OR_RETURN(CharacterMap map,
                       CharacterMap::Create(model.precompiled_charsmap, Cat(where, ".precompiled_charsmap")));
  return std::make_unique<SentencePieceNormalizer>(model, dummy_prefix, std::move(map));
}

}  // namespace moe
