#include "loaders/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "loaders/tokenizer/byte_token.h"
#include "loaders/tokenizer/text_range.h"
#include "loaders/tokenizer/utf8.h"

namespace moe {
namespace {

constexpr int32_t kNone = Vocabulary::kNone;
constexpr double kUnknownPenalty = 10.0;  // An unknown character costs this much more than the worst token.

}  // namespace

StatusOr<std::unique_ptr<TokenModel>> UnigramModel::Create(const Json& json, SpecialIds special,
                                                           std::string_view where) {
  auto model = std::make_unique<UnigramModel>();
  model->special_ = std::move(special);
  MOE_RETURN_IF_ERROR(model->ReadVocabulary(json, where));
  MOE_ASSIGN_OR_RETURN(const int64_t unknown, IntegerOr(json, "unk_id", kNone, where));
  if (unknown < kNone || unknown >= model->vocabulary_.size()) {
    return InvalidError(where, ".unk_id is ", unknown, ", the vocabulary has ", model->vocabulary_.size(), " tokens");
  }
  model->unknown_id_ = static_cast<int32_t>(unknown);
  MOE_ASSIGN_OR_RETURN(model->byte_fallback_, BoolOr(json, "byte_fallback", false, where));
  model->byte_ids_ = FindByteTokens(model->vocabulary_);
  return std::unique_ptr<TokenModel>(std::move(model));
}

Status UnigramModel::ReadVocabulary(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "vocab", where));
  if (list->size() > static_cast<size_t>(kMaxTokenId) + 1) {
    return InvalidError(where, ".vocab has ", list->size(), " tokens");
  }
  double worst = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return InvalidError(where, ".vocab[", i, "] is not a pair of token and score");
    }
    const auto id = static_cast<int32_t>(i);
    const std::string& token = entry[0].get_ref<const std::string&>();
    vocabulary_.Add(token, id);
    entries.emplace_back(token, id);
    scores_.push_back(entry[1].get<double>());
    worst = std::min(worst, scores_.back());
  }
  trie_.Build(std::move(entries));
  unknown_score_ = worst - kUnknownPenalty;
  return absl::OkStatus();
}

Status UnigramModel::FindBestPath(std::string_view word, bool allow_special, std::vector<Arrival>* arrivals) const {
  arrivals->assign(word.size() + 1, Arrival());
  const auto arrive = [&](size_t begin, size_t end, double score, int32_t id) {
    Arrival& arrival = (*arrivals)[end];
    if (!arrival.reached || score > arrival.score) arrival = {score, begin, id, true};
  };
  for (size_t begin = 0; begin < word.size();) {
    const double score_here = (*arrivals)[begin].score;
    size_t next = begin;
    NextCodePoint(word, &next);
    bool has_single = false;  // Some token is exactly this character.
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.Child(node, word[end++]);
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == ByteTrie::kNone || (!allow_special && special_.Has(id))) continue;
      arrive(begin, end, scores_[static_cast<size_t>(id)] + score_here, id);
      if (end == next) has_single = true;
    }
    if (!has_single) {
      if (unknown_id_ == kNone) {
        return InvalidError(
            "the text has a character that is not in the vocabulary, and the tokenizer has no token "
            "for unknown text (model.unk_id)");
      }
      arrive(begin, next, unknown_score_ + score_here, unknown_id_);
    }
    begin = next;
  }
  return absl::OkStatus();
}

void UnigramModel::AppendPart(std::string_view part, bool allow_special, std::vector<int32_t>* ids) const {
  const int32_t id = vocabulary_.Find(part);
  if (id != kNone && (allow_special || !special_.Has(id))) {
    ids->push_back(id);
    return;
  }
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::all_of(part.begin(), part.end(), [&](char c) { return byte_id(c) != kNone; })) {
    for (const char c : part) ids->push_back(byte_id(c));
    return;
  }
  ids->push_back(unknown_id_);
}

Status UnigramModel::Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const {
  if (cache_.Find(word, allow_special, ids)) return absl::OkStatus();
  std::vector<Arrival> arrivals;
  MOE_RETURN_IF_ERROR(FindBestPath(word, allow_special, &arrivals));
  // Walk back. Neighbouring unknown parts fuse into one.
  std::vector<TextRange> parts;
  bool previous_unknown = false;
  for (size_t end = word.size(); end > 0; end = arrivals[end].begin) {
    const Arrival& arrival = arrivals[end];
    const bool unknown = unknown_id_ != kNone && arrival.id == unknown_id_;
    if (unknown && previous_unknown) {
      parts.back().begin = arrival.begin;
    } else {
      parts.push_back({arrival.begin, end});
    }
    previous_unknown = unknown;
  }
  const size_t ids_before = ids->size();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    AppendPart(word.substr(part->begin, part->end - part->begin), allow_special, ids);
  }
  cache_.Insert(word, allow_special, std::span(*ids).subspan(ids_before));
  return absl::OkStatus();
}

}  // namespace moe
