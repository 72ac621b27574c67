// SentencePiece's Unigram: of all ways to write a word as pieces, the one with the greatest sum of scores. Which of
// equal ones that is depends on rounding: the arithmetic is that of SentencePiece 0.2.3.
#ifndef MOE_LOADERS_TOKENIZER_SENTENCEPIECE_UNIGRAM_H_
#define MOE_LOADERS_TOKENIZER_SENTENCEPIECE_UNIGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/byte_trie.h"
#include "loaders/tokenizer/sentencepiece_model.h"

namespace moe {

class SentencePieceUnigram : public SentencePieceModel {
 public:
  SentencePieceUnigram(const SentencePieceFile& file, SpecialIds special);

  // Time linear in the word's length, times that of the longest piece.
  Status Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const override;

 private:
  // The best way to reach a byte offset of the word.
  struct Arrival {
    size_t begin = 0;  // Where the last piece begins.
    int32_t id = -1;   // The last piece. -1: not reached.
    float score = 0;
  };

  std::vector<Arrival> FindBestPath(std::string_view word, bool allow_special) const;
  // A user-defined piece always wins.
  float ScoreOf(int32_t id, size_t length_bytes) const;

  ByteTrie trie_;
  float unknown_score_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SENTENCEPIECE_UNIGRAM_H_
