// Making a BPE model from a tokenizer.json, or from a tiktoken file.
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loaders/tokenizer/bpe.h"
#include "loaders/tokenizer/byte_alphabet.h"
#include "loaders/tokenizer/byte_token.h"

namespace moe {
namespace {

struct MergePair {
  std::string left;
  std::string right;
};

// "a b" in older files, ["a", "b"] in newer ones.
StatusOr<MergePair> ReadMergePair(const Json& json, std::string_view where) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    return MergePair{json[0].get<std::string>(), json[1].get<std::string>()};
  }
  if (!json.is_string()) return InvalidError(where, " is neither \"left right\" nor a pair of strings");
  const std::string& text = json.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return InvalidError(where, " \"", text, "\" is not two tokens with one space between them");
  }
  return MergePair{text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

StatusOr<std::unique_ptr<TokenModel>> BpeModel::Create(const Json& json, SpecialIds special, std::string_view where) {
  auto model = std::make_unique<BpeModel>();
  model->special_ = std::move(special);
  MOE_RETURN_IF_ERROR(model->ReadVocabulary(json, where));
  MOE_RETURN_IF_ERROR(model->ReadSettings(json, where));
  MOE_RETURN_IF_ERROR(model->ReadMerges(json, where));
  model->BuildCharacterTable();
  return std::unique_ptr<TokenModel>(std::move(model));
}

Status BpeModel::ReadVocabulary(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* vocab, RequireObject(json, "vocab", where));
  for (const auto& [token, value] : vocab->items()) {
    const auto id = ReadTokenId(value, Cat(where, ".vocab[\"", token, "\"]"));
    if (!id.ok()) return id.status();
    if (!vocabulary_.Add(token, *id)) {
      return InvalidError(where, ".vocab: id ", *id, " is used by \"", *vocabulary_.TokenOrNull(*id), "\" and by \"",
                          token, "\"");
    }
  }
  return absl::OkStatus();
}

Status BpeModel::ReadSettings(const Json& json, std::string_view where) {
  if (const Json* dropout = FindField(json, "dropout"); dropout != nullptr && *dropout != 0) {
    return UnsupportedError(where, ".dropout ", dropout->dump(), " (encoding would be random)");
  }
  MOE_ASSIGN_OR_RETURN(const std::string unknown, StringOr(json, "unk_token", "", where));
  MOE_ASSIGN_OR_RETURN(continuing_prefix_, StringOr(json, "continuing_subword_prefix", "", where));
  MOE_ASSIGN_OR_RETURN(end_suffix_, StringOr(json, "end_of_word_suffix", "", where));
  MOE_ASSIGN_OR_RETURN(fuse_unknown_, BoolOr(json, "fuse_unk", false, where));
  MOE_ASSIGN_OR_RETURN(byte_fallback_, BoolOr(json, "byte_fallback", false, where));
  MOE_ASSIGN_OR_RETURN(ignore_merges_, BoolOr(json, "ignore_merges", false, where));
  byte_ids_ = FindByteTokens(vocabulary_);
  if (!unknown.empty()) {
    unknown_id_ = vocabulary_.Find(unknown);
    unknown_missing_ = unknown_id_ == Vocabulary::kNone;
  }
  return absl::OkStatus();
}

Status BpeModel::ReadMerges(const Json& json, std::string_view where) {
  MOE_ASSIGN_OR_RETURN(const Json* list, RequireArray(json, "merges", where));
  merges_.Reserve(list->size());
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(list->size());
  uint32_t rank = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    // A header line that old converters left among the merges.
    if (entry.is_string() && entry.get_ref<const std::string&>().rfind("#version", 0) == 0) continue;
    const std::string entry_where = Cat(where, ".merges[", i, "]");
    MOE_ASSIGN_OR_RETURN(const MergePair pair, ReadMergePair(entry, entry_where));
    const int32_t left = vocabulary_.Find(pair.left);
    const int32_t right = vocabulary_.Find(pair.right);
    for (const auto& [token, id] : {std::pair(pair.left, left), std::pair(pair.right, right)}) {
      if (id == Vocabulary::kNone) return InvalidError(entry_where, ": \"", token, "\" is not in ", where, ".vocab");
    }
    if (pair.right.size() < continuing_prefix_.size()) {
      return InvalidError(entry_where, ": \"", pair.right, "\" does not begin with continuing_subword_prefix");
    }
    const std::string joined = pair.left + pair.right.substr(continuing_prefix_.size());
    const int32_t new_id = vocabulary_.Find(joined);
    if (new_id == Vocabulary::kNone) {
      return InvalidError(entry_where, ": the result \"", joined, "\" is not in ", where, ".vocab");
    }
    merges_.Add(left, right, {rank++, new_id});
    pairs.emplace_back(left, right);
  }
  BuildSeams(pairs);
  return absl::OkStatus();
}

std::unique_ptr<TokenModel> BpeModel::CreateFromRanks(const std::vector<RankedToken>& tokens, SpecialIds special) {
  auto model = std::make_unique<BpeModel>();
  model->special_ = std::move(special);
  std::unordered_map<std::string_view, int32_t> ids;
  for (const RankedToken& token : tokens) {
    std::string spelled;
    AppendByteSpelling(token.bytes, &spelled);
    model->vocabulary_.Add(spelled, token.rank);
    ids.emplace(token.bytes, token.rank);
  }
  // A token may be made of several pairs. All have its rank, so that the leftmost one joins first.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  std::vector<int32_t> results;
  std::vector<std::pair<int32_t, int32_t>> seams;  // A pair for each two bytes that join.
  std::vector<bool> has_seam(size_t{256} * 256);
  for (const RankedToken& token : tokens) {
    const std::string_view bytes = token.bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(bytes.substr(cut));
      if (right == ids.end()) continue;
      pairs.emplace_back(left->second, right->second);
      results.push_back(token.rank);
      const size_t seam =
          static_cast<unsigned char>(bytes[cut - 1]) * size_t{256} + static_cast<unsigned char>(bytes[cut]);
      if (!has_seam[seam]) seams.push_back(pairs.back());
      has_seam[seam] = true;
    }
  }
  model->merges_.Reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    model->merges_.Add(pairs[i].first, pairs[i].second, {static_cast<uint32_t>(results[i]), results[i]});
  }
  model->ignore_merges_ = true;
  model->unknown_missing_ = true;  // A byte that is no token can not be encoded.
  model->BuildSeams(seams);
  model->BuildCharacterTable();
  return model;
}

}  // namespace moe
