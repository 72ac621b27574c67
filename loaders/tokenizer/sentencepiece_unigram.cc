#include "loaders/tokenizer/sentencepiece_unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "loaders/tokenizer/text_range.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

constexpr float kUnknownPenalty = 10;    // An unknown character costs this much more than the worst piece.
constexpr float kGreatestSum = 100'000;  // Beyond it sums begin anew, or long texts would lose the difference.

}  // namespace

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceFile& file, SpecialIds special)
    : SentencePieceModel(file, std::move(special)) {
  float worst = std::numeric_limits<float>::max();
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    if (piece.type == SentencePiece::kNormal) worst = std::min(worst, piece.score);
    if (piece.IsOfText() && piece.type != SentencePiece::kUnused) {
      entries.emplace_back(piece.text, static_cast<int32_t>(id));
    }
  }
  trie_.Build(std::move(entries));
  unknown_score_ = worst - kUnknownPenalty;
}

float SentencePieceUnigram::ScoreOf(int32_t id, size_t length_bytes) const {
  if (TypeOf(id) != SentencePiece::kUserDefined) return scores_[static_cast<size_t>(id)];
  return static_cast<float>(0.1 * (static_cast<double>(length_bytes) - 1));
}

std::vector<SentencePieceUnigram::Arrival> SentencePieceUnigram::FindBestPath(std::string_view word,
                                                                              bool allow_special) const {
  std::vector<Arrival> arrivals(word.size() + 1);
  size_t furthest = 0;  // No offset behind it has been reached.
  const auto arrive = [&](size_t begin, size_t end, float score, int32_t id) {
    Arrival& arrival = arrivals[end];
    if (arrival.id < 0 || score > arrival.score) arrival = {begin, id, score};
    furthest = std::max(furthest, end);
  };
  for (size_t begin = 0; begin < word.size();) {
    float score_here = arrivals[begin].score;
    if (std::abs(score_here) > kGreatestSum) {
      for (size_t end = begin; end <= furthest; ++end) {
        if (end == begin || arrivals[end].id >= 0) arrivals[end].score -= score_here;
      }
      score_here = 0;
    }
    size_t next = begin;
    NextCodePoint(word, &next);
    bool has_single = false;  // Some piece is exactly this character.
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.Child(node, word[end++]);
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == ByteTrie::kNone || !MayMake(id, allow_special)) continue;
      arrive(begin, end, ScoreOf(id, end - begin) + score_here, id);
      if (end == next) has_single = true;
    }
    if (!has_single) arrive(begin, next, unknown_score_ + score_here, unknown_id_);
    begin = next;
  }
  return arrivals;
}

Status SentencePieceUnigram::Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const {
  const std::vector<Arrival> arrivals = FindBestPath(word, allow_special);
  std::vector<TextRange> parts;
  for (size_t end = word.size(); end > 0; end = arrivals[end].begin) parts.push_back({arrivals[end].begin, end});
  Output output(*this, ids);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    output.Add(word.substr(part->begin, part->end - part->begin), arrivals[part->end].id);
  }
  return absl::OkStatus();
}

}  // namespace moe
