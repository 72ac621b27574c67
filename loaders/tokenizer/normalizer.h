// The `normalizer` of a tokenizer.json: what happens to text before it is cut up.
#ifndef MOE_LOADERS_TOKENIZER_NORMALIZER_H_
#define MOE_LOADERS_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>
#include <string_view>

#include "loaders/tokenizer/json_fields.h"
#include "parallel/base/status.h"

namespace moe {

class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Changes `text` in place; it stays valid UTF-8. Thread-safe.
  // Fails only where a pattern meets text that is too complex for it (RESOURCE_EXHAUSTED).
  virtual Status Apply(std::string* text) const = 0;
};

// Null for JSON null. UNSUPPORTED names an unknown type.
StatusOr<std::unique_ptr<Normalizer>> CreateNormalizer(const Json* json, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_NORMALIZER_H_
