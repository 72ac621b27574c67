// The `model` of a tokenizer.json: turns one piece of text into ids.
#ifndef MOE_LOADERS_TOKENIZER_TOKEN_MODEL_H_
#define MOE_LOADERS_TOKENIZER_TOKEN_MODEL_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/vocabulary.h"
#include "parallel/base/status.h"

namespace moe {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of `word`. With `allow_special` false no id of a special token is made from text that happens to
  // spell it (the token for unknown text excepted). REQUIRES: `word` is valid UTF-8 and not empty. Thread-safe.
  virtual Status Encode(std::string_view word, bool allow_special, std::vector<int32_t>* ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Ids that text from outside must not be able to produce.
class SpecialIds {
 public:
  void Add(int32_t id) {
    if (static_cast<size_t>(id) >= bits_.size()) bits_.resize(static_cast<size_t>(id) + 1, false);
    bits_[static_cast<size_t>(id)] = true;
  }
  bool Has(int32_t id) const { return static_cast<size_t>(id) < bits_.size() && bits_[static_cast<size_t>(id)]; }

 private:
  std::vector<bool> bits_;
};

StatusOr<std::unique_ptr<TokenModel>> CreateTokenModel(const Json& json, SpecialIds special, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_TOKEN_MODEL_H_
