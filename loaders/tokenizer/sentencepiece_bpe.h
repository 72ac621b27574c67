// SentencePiece's BPE: again and again the neighbours that together spell the piece of greatest score join, the
// leftmost of equals first.
#ifndef MOE_LOADERS_TOKENIZER_SENTENCEPIECE_BPE_H_
#define MOE_LOADERS_TOKENIZER_SENTENCEPIECE_BPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loaders/tokenizer/byte_trie.h"
#include "loaders/tokenizer/sentencepiece_model.h"

namespace moe {

class SentencePieceBpe : public SentencePieceModel {
 public:
  SentencePieceBpe(const SentencePieceFile& file, SpecialIds special);

  // Time n log n in the length of the word.
  Status Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const override;

 private:
  // A part of the word, in a linked list. One that has joined its left neighbour has no text.
  struct Symbol {
    std::string_view text;
    size_t previous;
    size_t next;
    bool frozen;  // A user-defined piece: joins with nothing.
  };
  // How an unused piece came about: the size of its left half.
  using Halves = std::unordered_map<std::string_view, size_t>;

  // The piece that `text` can become, or kNone.
  int32_t Find(std::string_view text, bool allow_special) const;
  std::vector<Symbol> Cut(std::string_view word, bool allow_special) const;
  void Join(std::string_view word, bool allow_special, std::vector<Symbol>* symbols, Halves* halves) const;
  void Append(std::string_view text, bool allow_special, const Halves& halves, Output* output) const;

  ByteTrie user_defined_;
  size_t longest_piece_ = 0;  // In bytes.
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SENTENCEPIECE_BPE_H_
