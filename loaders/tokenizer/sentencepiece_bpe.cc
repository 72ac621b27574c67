#include "loaders/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

constexpr int32_t kNone = Vocabulary::kNone;
constexpr size_t kEnd = std::numeric_limits<size_t>::max();

struct Candidate {
  float score;
  size_t left;  // Symbols.
  size_t right;
  size_t size;                                    // Of both together, in bytes: tells whether one has changed since.
  bool operator<(const Candidate& other) const {  // std::priority_queue gives the greatest first.
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceFile& file, SpecialIds special)
    : SentencePieceModel(file, std::move(special)) {
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    if (piece.IsOfText()) longest_piece_ = std::max(longest_piece_, piece.text.size());
    if (piece.type == SentencePiece::kUserDefined) user_defined.emplace_back(piece.text, static_cast<int32_t>(id));
  }
  user_defined_.Build(std::move(user_defined));
}

int32_t SentencePieceBpe::Find(std::string_view text, bool allow_special) const {
  if (text.size() > longest_piece_) return kNone;
  const int32_t id = vocabulary_.Find(text);
  if (id == kNone || !MayMake(id, allow_special)) return kNone;
  const SentencePiece::Type type = TypeOf(id);
  const bool of_text =
      type == SentencePiece::kNormal || type == SentencePiece::kUserDefined || type == SentencePiece::kUnused;
  return of_text ? id : kNone;
}

std::vector<SentencePieceBpe::Symbol> SentencePieceBpe::Cut(std::string_view word, bool allow_special) const {
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = begin;
    int32_t node = ByteTrie::kRoot;
    for (size_t at = begin; at < word.size() && !user_defined_.empty();) {
      node = user_defined_.Child(node, word[at++]);
      if (node == ByteTrie::kNone) break;
      const int32_t id = user_defined_.Value(node);
      if (id != ByteTrie::kNone && MayMake(id, allow_special)) end = at;
    }
    const bool frozen = end > begin;
    if (!frozen) NextCodePoint(word, &end);
    const size_t index = symbols.size();
    symbols.push_back({word.substr(begin, end - begin), index == 0 ? kEnd : index - 1, index + 1, frozen});
    begin = end;
  }
  symbols.back().next = kEnd;
  return symbols;
}

void SentencePieceBpe::Join(std::string_view word, bool allow_special, std::vector<Symbol>* symbols,
                            Halves* halves) const {
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](size_t left, size_t right) {
    if (left == kEnd || right == kEnd) return;
    const Symbol& first = (*symbols)[left];
    const Symbol& second = (*symbols)[right];
    if (first.frozen || second.frozen) return;
    const auto begin = static_cast<size_t>(first.text.data() - word.data());
    const std::string_view joined = word.substr(begin, first.text.size() + second.text.size());
    const int32_t id = Find(joined, allow_special);
    if (id == kNone) return;
    candidates.push({scores_[static_cast<size_t>(id)], left, right, joined.size()});
    if (TypeOf(id) == SentencePiece::kUnused) (*halves)[joined] = first.text.size();
  };
  for (size_t i = 1; i < symbols->size(); ++i) consider(i - 1, i);
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    Symbol& left = (*symbols)[top.left];
    Symbol& right = (*symbols)[top.right];
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != top.size) continue;
    left.text = std::string_view(left.text.data(), top.size);
    left.next = right.next;
    if (right.next != kEnd) (*symbols)[right.next].previous = top.left;
    right.text = {};
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }
}

// The recursion is no deeper than the longest piece has characters.
void SentencePieceBpe::Append(std::string_view text, bool allow_special, const Halves& halves, Output* output) const {
  const int32_t id = Find(text, allow_special);
  if (id != kNone && TypeOf(id) == SentencePiece::kUnused) {
    if (const auto it = halves.find(text); it != halves.end()) {
      Append(text.substr(0, it->second), allow_special, halves, output);
      Append(text.substr(it->second), allow_special, halves, output);
      return;
    }
  }
  output->Add(text, id == kNone ? unknown_id_ : id);
}

Status SentencePieceBpe::Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const {
  std::vector<Symbol> symbols = Cut(word, allow_special);
  Halves halves;
  Join(word, allow_special, &symbols, &halves);
  Output output(*this, ids);
  for (size_t i = 0; i != kEnd; i = symbols[i].next) Append(symbols[i].text, allow_special, halves, &output);
  return absl::OkStatus();
}

}  // namespace moe
