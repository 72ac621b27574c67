// What a tokenizer is made of. Only tokenizer*.cc includes this.
#ifndef MOE_LOADERS_TOKENIZER_TOKENIZER_PARTS_H_
#define MOE_LOADERS_TOKENIZER_TOKENIZER_PARTS_H_

#include <memory>

#include "loaders/tokenizer/added_vocabulary.h"
#include "loaders/tokenizer/normalizer.h"
#include "loaders/tokenizer/post_processor.h"
#include "loaders/tokenizer/pre_tokenizer.h"
#include "loaders/tokenizer/token_decoder.h"
#include "loaders/tokenizer/token_model.h"
#include "loaders/tokenizer/tokenizer.h"

namespace moe {

// In the order in which text passes through them.
struct Tokenizer::Parts {
  AddedVocabulary added;
  std::unique_ptr<Normalizer> normalizer;       // May be null.
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // May be null.
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  TokenDecoder decoder;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TOKENIZER_PARTS_H_
