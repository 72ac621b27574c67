// The `post_processor` of a tokenizer.json, for a single text: which ids stand before and behind it.
#ifndef MOE_LOADERS_TOKENIZER_POST_PROCESSOR_H_
#define MOE_LOADERS_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "loaders/tokenizer/json_fields.h"
#include "parallel/base/status.h"

namespace moe {

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Nothing is added for JSON null. UNSUPPORTED names an unknown type.
StatusOr<PostProcessor> ReadPostProcessor(const Json* json, std::string_view where);

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_POST_PROCESSOR_H_
