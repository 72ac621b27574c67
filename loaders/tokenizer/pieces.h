// Text cut into pieces, as pre-tokenization steps hand it on.
#ifndef MOE_LOADERS_TOKENIZER_PIECES_H_
#define MOE_LOADERS_TOKENIZER_PIECES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

struct Piece {
  size_t begin;  // Byte range in Pieces::text. Never empty.
  size_t end;
  bool at_text_start;  // The piece begins where the whole text that is being encoded begins.
};

struct Pieces {
  std::string text;
  std::vector<Piece> list;

  std::string_view View(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_PIECES_H_
