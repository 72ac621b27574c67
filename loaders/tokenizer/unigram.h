// Unigram: of all ways to write a word as tokens, the one with the greatest sum of scores.
#ifndef MOE_LOADERS_TOKENIZER_UNIGRAM_H_
#define MOE_LOADERS_TOKENIZER_UNIGRAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/byte_trie.h"
#include "loaders/tokenizer/token_model.h"
#include "loaders/tokenizer/word_cache.h"

namespace moe {

class UnigramModel : public TokenModel {
 public:
  static StatusOr<std::unique_ptr<TokenModel>> Create(const Json& json, SpecialIds special, std::string_view where);

  // Time linear in the word's length, times that of the longest token.
  // INVALID when a character has no token and the model none for unknown text.
  Status Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const override;

 private:
  // The best way to reach a byte offset of the word.
  struct Arrival {
    double score = 0;
    size_t begin = 0;  // Where the last token begins.
    int32_t id = -1;   // The last token.
    bool reached = false;
  };

  Status ReadVocabulary(const Json& json, std::string_view where);
  Status FindBestPath(std::string_view word, bool allow_special, std::vector<Arrival>* arrivals) const;
  // Ids of a part of the path that the vocabulary may not have, appended in order.
  void AppendPart(std::string_view part, bool allow_special, std::vector<int32_t>* ids) const;

  SpecialIds special_;
  std::vector<double> scores_;  // By id.
  ByteTrie trie_;
  double unknown_score_ = 0;
  int32_t unknown_id_ = Vocabulary::kNone;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_ids_{};
  mutable WordCache cache_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_UNIGRAM_H_
