// A byte range of some text.
#ifndef MOE_LOADERS_TOKENIZER_TEXT_RANGE_H_
#define MOE_LOADERS_TOKENIZER_TEXT_RANGE_H_

#include <cstddef>

namespace moe {

struct TextRange {
  size_t begin;
  size_t end;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TEXT_RANGE_H_
