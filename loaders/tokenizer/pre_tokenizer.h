// The `pre_tokenizer` of a tokenizer.json: cuts normalised text into the pieces that the model encodes one by one.
#ifndef MOE_LOADERS_TOKENIZER_PRE_TOKENIZER_H_
#define MOE_LOADERS_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "loaders/tokenizer/json_fields.h"
#include "loaders/tokenizer/pieces.h"
#include "parallel/base/status.h"

namespace moe {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Cuts the pieces further, and may rewrite their text. Thread-safe.
  // Fails only where a pattern meets text that is too complex for it (RESOURCE_EXHAUSTED).
  virtual Status Apply(Pieces* pieces) const = 0;
};

// Null for JSON null. UNSUPPORTED names an unknown type.
StatusOr<std::unique_ptr<PreTokenizer>> CreatePreTokenizer(const Json* json, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_PRE_TOKENIZER_H_
