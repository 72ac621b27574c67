#include "loaders/tokenizer/incremental_detokenizer.h"

namespace moe {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool keep_special)
    : tokenizer_(&tokenizer), keep_special_(keep_special), stream_(tokenizer.decoder()) {}

std::string IncrementalDetokenizer::Push(int32_t id) {
  if (tokenizer_->IsValidId(id) && (keep_special_ || !tokenizer_->IsSpecial(id))) {
    stream_.Push(tokenizer_->DecodingToken(id));
  }
  return stream_.TakeText();
}

std::string IncrementalDetokenizer::Finish() {
  stream_.Finish();
  return stream_.TakeText();
}

}  // namespace moe
