#include "loaders/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <span>
#include <utility>

#include "loaders/tokenizer/byte_token.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

constexpr int32_t kNone = Vocabulary::kNone;
constexpr char32_t kTableCharacters = 0x180;  // Covers the alphabet of byte-level tokenizers.
constexpr size_t kMaxShortWordSymbols = 32;   // Up to here scanning beats a heap.
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

}  // namespace

int32_t BpeModel::Lookup(std::string_view token, bool allow_special) const {
  const int32_t id = vocabulary_.Find(token);
  return id != kNone && !allow_special && special_.Has(id) ? kNone : id;
}

const Merge* BpeModel::FindMerge(int32_t left, int32_t right, bool allow_special) const {
  const Merge* merge = merges_.Find(left, right);
  return merge != nullptr && !allow_special && special_.Has(merge->new_id) ? nullptr : merge;
}

void BpeModel::BuildCharacterTable() {
  character_ids_.assign(kTableCharacters, kNone);
  std::string text;
  for (char32_t c = 0; c < kTableCharacters; ++c) {
    text.clear();
    AppendUtf8(c, &text);
    character_ids_[c] = vocabulary_.Find(text);
  }
}

void BpeModel::BuildSeams(const std::vector<std::pair<int32_t, int32_t>>& merges) {
  // Characters are symbols of their own only without affixes. And a merge of byte tokens or of the token for unknown
  // text, which no known model has, would not show in the characters.
  if (!continuing_prefix_.empty() || !end_suffix_.empty()) return;
  const auto spells_itself = [&](int32_t id) {
    return id != unknown_id_ && ReadByteToken(*vocabulary_.TokenOrNull(id)) < 0;
  };
  seams_.Reserve(merges.size());
  for (const auto& [left, right] : merges) {
    if (!spells_itself(left) || !spells_itself(right)) return;
    const std::string& left_text = *vocabulary_.TokenOrNull(left);
    const std::string& right_text = *vocabulary_.TokenOrNull(right);
    if (left_text.empty() || right_text.empty()) return;
    std::string before, behind;
    AppendUtf8(PreviousCodePoint(left_text, left_text.size()), &before);
    size_t pos = 0;
    AppendUtf8(NextCodePoint(right_text, &pos), &behind);
    const int32_t before_id = vocabulary_.Find(before);
    const int32_t behind_id = vocabulary_.Find(behind);
    if (before_id != kNone && behind_id != kNone) seams_.Add(before_id, behind_id, {});
  }
  has_seams_ = true;
}

Status BpeModel::Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const {
  if (cache_.Find(word, allow_special, ids)) return absl::OkStatus();
  if (ignore_merges_) {
    if (const int32_t id = Lookup(word, allow_special); id != kNone) {
      ids->push_back(id);
      cache_.Insert(word, allow_special, std::span(&id, 1));
      return absl::OkStatus();
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  MOE_RETURN_IF_ERROR(AppendSymbols(word, allow_special, &symbols));
  JoinSymbols(allow_special, &symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
  cache_.Insert(word, allow_special, symbols);
  return absl::OkStatus();
}

int32_t BpeModel::CharacterId(std::string_view character, bool first, bool last, bool allow_special) const {
  const bool has_prefix = !first && !continuing_prefix_.empty();
  const bool has_suffix = last && !end_suffix_.empty();
  if (has_prefix || has_suffix) {
    std::string token = has_prefix ? continuing_prefix_ : std::string();
    token += character;
    if (has_suffix) token += end_suffix_;
    return Lookup(token, allow_special);
  }
  size_t pos = 0;
  const char32_t code_point = NextCodePoint(character, &pos);
  if (code_point >= kTableCharacters) return Lookup(character, allow_special);
  const int32_t id = character_ids_[code_point];
  return id != kNone && !allow_special && special_.Has(id) ? kNone : id;
}

bool BpeModel::AppendByteFallback(std::string_view text, std::vector<int32_t>* symbols) const {
  for (const char c : text) {
    if (byte_ids_[static_cast<unsigned char>(c)] == kNone) return false;
  }
  for (const char c : text) symbols->push_back(byte_ids_[static_cast<unsigned char>(c)]);
  return true;
}

Status BpeModel::AppendSymbols(std::string_view word, bool allow_special, std::vector<int32_t>* symbols) const {
  // The token for unknown characters waits until a known one follows, so that several can fuse. Byte tokens do not
  // end the wait; the reference has that order too.
  bool unknown_waits = false;
  for (size_t pos = 0; pos < word.size();) {
    const size_t begin = pos;
    NextCodePoint(word, &pos);
    const std::string_view character = word.substr(begin, pos - begin);
    const bool first = begin == 0;
    const bool last = pos == word.size();
    if (const int32_t id = CharacterId(character, first, last, allow_special); id != kNone) {
      if (unknown_waits) symbols->push_back(unknown_id_);
      unknown_waits = false;
      symbols->push_back(id);
      continue;
    }
    if (byte_fallback_) {
      std::string text = first ? std::string() : continuing_prefix_;
      text += character;
      if (last) text += end_suffix_;
      if (AppendByteFallback(text, symbols)) continue;
    }
    if (unknown_missing_) {
      return InvalidError(
          "the text has a character that is not in the vocabulary, and neither is the tokenizer's token "
          "for those (model.unk_token)");
    }
    if (unknown_id_ == kNone) continue;  // No token at all: the character is dropped.
    if (unknown_waits && !fuse_unknown_) symbols->push_back(unknown_id_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols->push_back(unknown_id_);
  return absl::OkStatus();
}

void BpeModel::JoinSymbols(bool allow_special, std::vector<int32_t>* symbols) const {
  const size_t count = symbols->size();
  if (count <= kMaxShortWordSymbols) {
    symbols->resize(JoinShort(allow_special, *symbols));
    return;
  }
  size_t kept = 0;
  for (size_t begin = 0; begin < count;) {
    size_t end = begin + 1;
    while (end < count && (!has_seams_ || seams_.Find((*symbols)[end - 1], (*symbols)[end]) != nullptr)) ++end;
    const std::span<int32_t> part = std::span(*symbols).subspan(begin, end - begin);
    const size_t left =
        part.size() <= kMaxShortWordSymbols ? JoinShort(allow_special, part) : JoinLong(allow_special, part);
    std::copy_n(part.begin(), left, symbols->begin() + static_cast<std::ptrdiff_t>(kept));
    kept += left;
    begin = end;
  }
  symbols->resize(kept);
}

size_t BpeModel::JoinShort(bool allow_special, std::span<int32_t> symbols) const {
  size_t count = symbols.size();
  if (count < 2) return count;
  // merges[i]: what joins symbol i and symbol i + 1.
  Merge merges[kMaxShortWordSymbols];
  const auto look_up = [&](size_t i) {
    const Merge* merge = FindMerge(symbols[i], symbols[i + 1], allow_special);
    merges[i] = merge != nullptr ? *merge : Merge{kNoRank, kNone};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = merges[best].new_id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i - 1] = merges[i];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

size_t BpeModel::JoinLong(bool allow_special, std::span<int32_t> symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t position;  // Of the left symbol.
    int32_t new_id;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the greatest first.
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  // A linked list over the symbols. A symbol that joined its left neighbour has id kNone.
  const size_t count = symbols.size();
  constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> previous(count), next(count);
  std::vector<Candidate> storage;
  storage.reserve(count * 2);
  std::priority_queue<Candidate> candidates(std::less<Candidate>(), std::move(storage));
  const auto consider = [&](uint32_t left, uint32_t right) {
    const Merge* merge = FindMerge(symbols[left], symbols[right], allow_special);
    if (merge != nullptr) candidates.push({merge->rank, left, merge->new_id});
  };
  for (size_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kEnd : static_cast<uint32_t>(i - 1);
    next[i] = i + 1 == count ? kEnd : static_cast<uint32_t>(i + 1);
    if (i + 1 < count) consider(static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1));
  }
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    const uint32_t left = top.position;
    if (symbols[left] == kNone || next[left] == kEnd) continue;
    const uint32_t right = next[left];
    // The pair may have changed since the candidate was noted.
    const Merge* merge = FindMerge(symbols[left], symbols[right], allow_special);
    if (merge == nullptr || merge->new_id != top.new_id) continue;
    symbols[left] = top.new_id;
    symbols[right] = kNone;
    next[left] = next[right];
    if (next[left] != kEnd) previous[next[left]] = left;
    if (previous[left] != kEnd) consider(previous[left], left);
    if (next[left] != kEnd) consider(left, next[left]);
  }
  const auto end = std::remove(symbols.begin(), symbols.end(), kNone);
  return static_cast<size_t>(end - symbols.begin());
}

}  // namespace moe
