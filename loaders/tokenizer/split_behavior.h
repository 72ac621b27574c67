// What a Split does with its delimiters.
#ifndef MOE_LOADERS_TOKENIZER_SPLIT_BEHAVIOR_H_
#define MOE_LOADERS_TOKENIZER_SPLIT_BEHAVIOR_H_

#include <string_view>
#include <vector>

#include "loaders/tokenizer/pieces.h"
#include "loaders/tokenizer/text_range.h"
#include "parallel/base/status.h"

namespace moe {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

StatusOr<SplitBehavior> ReadSplitBehavior(std::string_view name, std::string_view where);

// Cuts `piece` at the delimiters and appends the non-empty parts to `out`. `delimiters` are offsets from the piece's
// begin, ascending. With `invert`, the delimiters are what lies between them instead.
void SplitPiece(const Piece& piece, const std::vector<TextRange>& delimiters, SplitBehavior behavior, bool invert,
                std::vector<Piece>* out);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_SPLIT_BEHAVIOR_H_
