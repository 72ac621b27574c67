#include "loaders/tokenizer/added_vocabulary.h"

#include <algorithm>
#include <set>
#include <utility>

#include "loaders/tokenizer/unicode.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

StatusOr<AddedToken> ReadAddedToken(const Json& json, std::string_view where) {
  if (!json.is_object()) return InvalidError(where, " is ", json.type_name(), ", expected an object");
  AddedToken token;
  const auto id = json.find("id");
  if (id == json.end()) return InvalidError(where, ".id is missing");
  MOE_ASSIGN_OR_RETURN(token.id, ReadTokenId(*id, Cat(where, ".id")));
  MOE_ASSIGN_OR_RETURN(token.content, RequireString(json, "content", where));
  MOE_ASSIGN_OR_RETURN(token.special, BoolOr(json, "special", false, where));
  MOE_ASSIGN_OR_RETURN(token.single_word, BoolOr(json, "single_word", false, where));
  MOE_ASSIGN_OR_RETURN(token.lstrip, BoolOr(json, "lstrip", false, where));
  MOE_ASSIGN_OR_RETURN(token.rstrip, BoolOr(json, "rstrip", false, where));
  MOE_ASSIGN_OR_RETURN(token.normalized, BoolOr(json, "normalized", !token.special, where));
  token.match_text = token.content;
  return token;
}

bool StandsAlone(std::string_view text, TextRange match) {
  if (match.begin > 0 && IsWordCharacter(PreviousCodePoint(text, match.begin))) return false;
  size_t pos = match.end;
  return pos == text.size() || !IsWordCharacter(NextCodePoint(text, &pos));
}

size_t BeginOfSpaceBefore(std::string_view text, size_t pos) {
  while (pos > 0 && IsWhiteSpace(PreviousCodePoint(text, pos))) {
    do {
      --pos;
    } while ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  }
  return pos;
}

size_t EndOfSpaceBehind(std::string_view text, size_t pos) {
  for (size_t next = pos; next < text.size(); pos = next) {
    if (!IsWhiteSpace(NextCodePoint(text, &next))) break;
  }
  return pos;
}

}  // namespace

Trust Trust::All(bool trusted, size_t size) {
  std::vector<TextRange> untrusted;
  if (!trusted && size > 0) untrusted.push_back({0, size});
  return Trust(std::move(untrusted));
}

bool Trust::AllTrusted(TextRange range) const {
  const auto it = std::lower_bound(untrusted_.begin(), untrusted_.end(), range.begin,
                                   [](const TextRange& r, size_t begin) { return r.end <= begin; });
  return it == untrusted_.end() || it->begin >= range.end;
}

bool Trust::AllUntrusted(TextRange range) const {
  const auto it = std::lower_bound(untrusted_.begin(), untrusted_.end(), range.begin,
                                   [](const TextRange& r, size_t begin) { return r.end <= begin; });
  return it != untrusted_.end() && it->begin <= range.begin && it->end >= range.end;
}

StatusOr<AddedVocabulary> AddedVocabulary::Create(const Json* list, std::string_view where) {
  AddedVocabulary vocabulary;
  if (list == nullptr) return vocabulary;
  if (!list->is_array()) return InvalidError(where, " is ", list->type_name(), ", expected an array");
  std::set<int32_t> ids;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string token_where = Cat(where, "[", i, "]");
    MOE_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken((*list)[i], token_where));
    if (token.content.empty()) continue;  // Would match everywhere.
    if (!ids.insert(token.id).second) return InvalidError(token_where, ".id ", token.id, " is used twice");
    if (!vocabulary.by_content_.emplace(token.content, vocabulary.tokens_.size()).second) {
      return InvalidError(token_where, ".content \"", token.content, "\" is there twice, with another id");
    }
    vocabulary.tokens_.push_back(std::move(token));
  }
  return vocabulary;
}

Status AddedVocabulary::Prepare(const Normalizer* normalizer) {
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    if (token.normalized && normalizer != nullptr) MOE_RETURN_IF_ERROR(normalizer->Apply(&token.match_text));
    (token.normalized ? normalized : raw).emplace_back(token.match_text, static_cast<int32_t>(i));
  }
  raw_.Build(std::move(raw));
  normalized_.Build(std::move(normalized));
  return absl::OkStatus();
}

const AddedToken* AddedVocabulary::FindByContent(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

std::vector<AddedSplit> AddedVocabulary::SplitRaw(std::string_view text, const Trust& trust) const {
  return Split(raw_, text, trust);
}

std::vector<AddedSplit> AddedVocabulary::SplitNormalized(std::string_view text, const Trust& trust) const {
  return Split(normalized_, text, trust);
}

const AddedToken* AddedVocabulary::LongestAt(const ByteTrie& trie, std::string_view text, size_t begin,
                                             const Trust& trust) const {
  const AddedToken* longest = nullptr;
  int32_t node = ByteTrie::kRoot;
  for (size_t end = begin; end < text.size();) {
    node = trie.Child(node, text[end++]);
    if (node == ByteTrie::kNone) break;
    const int32_t index = trie.Value(node);
    if (index == ByteTrie::kNone) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    if (token.special && !trust.AllTrusted({begin, end})) continue;
    longest = &token;
  }
  return longest;
}

std::vector<AddedSplit> AddedVocabulary::Split(const ByteTrie& trie, std::string_view text, const Trust& trust) const {
  std::vector<AddedSplit> splits;
  if (text.empty()) return splits;
  size_t covered = 0;
  for (size_t pos = 0; !trie.empty() && pos < text.size();) {
    const AddedToken* token = LongestAt(trie, text, pos, trust);
    if (token == nullptr) {
      ++pos;
      continue;
    }
    TextRange match{pos, pos + token->match_text.size()};
    pos = match.end;
    // A token that should be a word of its own and is not here: the search goes on behind it, as in the reference.
    if (token->single_word && !StandsAlone(text, match)) continue;
    if (token->lstrip) match.begin = std::max(BeginOfSpaceBefore(text, match.begin), covered);
    if (token->rstrip) match.end = EndOfSpaceBehind(text, match.end);
    if (covered < match.begin) splits.push_back({{covered, match.begin}, nullptr});
    splits.push_back({match, token});
    covered = match.end;
  }
  if (covered < text.size()) splits.push_back({{covered, text.size()}, nullptr});
  return splits;
}

}  // namespace moe
