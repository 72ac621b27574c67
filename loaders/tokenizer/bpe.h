// Byte pair encoding: a word starts as its characters; again and again the neighbouring pair of lowest rank joins, the
// leftmost of equals first.
#ifndef MOE_LOADERS_TOKENIZER_BPE_H_
#define MOE_LOADERS_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loaders/tokenizer/merge_table.h"
#include "loaders/tokenizer/tiktoken_file.h"
#include "loaders/tokenizer/token_model.h"
#include "loaders/tokenizer/word_cache.h"

namespace moe {

class BpeModel : public TokenModel {
 public:
  static StatusOr<std::unique_ptr<TokenModel>> Create(const Json& json, SpecialIds special, std::string_view where);
  // As tiktoken does it: two neighbours join where they together are a token, that of lowest rank first, and a word
  // that is a token is that token. Works on text spelled in the byte alphabet.
  static std::unique_ptr<TokenModel> CreateFromRanks(const std::vector<RankedToken>& tokens, SpecialIds special);

  // Time n log n in the length of the word, constant stack.
  Status Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const override;

 private:
  Status ReadVocabulary(const Json& json, std::string_view where);
  Status ReadMerges(const Json& json, std::string_view where);
  Status ReadSettings(const Json& json, std::string_view where);
  void BuildCharacterTable();
  void BuildSeams(const std::vector<std::pair<int32_t, int32_t>>& merges);

  // Id of a token unless it may not be made; kNone if there is none.
  int32_t Lookup(std::string_view token, bool allow_special) const;
  const Merge* FindMerge(int32_t left, int32_t right, bool allow_special) const;

  // The word as characters: the first step. INVALID when one is unknown and the token for those is itself missing.
  Status AppendSymbols(std::string_view word, bool allow_special, std::vector<int32_t>* symbols) const;
  int32_t CharacterId(std::string_view character, bool first, bool last, bool allow_special) const;
  bool AppendByteFallback(std::string_view text, std::vector<int32_t>* symbols) const;
  // The joining, in place.
  void JoinSymbols(bool allow_special, std::vector<int32_t>* symbols) const;
  // The same for a part that joins with nothing outside. Returns how many symbols are left, at the front. The short one
  // scans all pairs for each join, the long one keeps them in a heap.
  size_t JoinShort(bool allow_special, std::span<int32_t> symbols) const;
  size_t JoinLong(bool allow_special, std::span<int32_t> symbols) const;

  SpecialIds special_;
  MergeTable merges_;
  // The pairs of characters that stand side by side where some merge joins. A long word falls apart between all others.
  MergeTable seams_;
  bool has_seams_ = false;
  std::string continuing_prefix_;  // In front of every character but the first.
  std::string end_suffix_;         // Behind the last character.
  int32_t unknown_id_ = Vocabulary::kNone;
  bool unknown_missing_ = false;  // The file names a token for unknown characters that it does not have.
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;           // A word that is a token is that token, whatever the merges say.
  std::array<int32_t, 256> byte_ids_{};  // <0x00> … <0xFF>
  std::vector<int32_t> character_ids_;   // By code point, for the first few hundred.
  mutable WordCache cache_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_BPE_H_
