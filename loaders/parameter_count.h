// How large a model is, from the shapes of its spec.
#ifndef MOE_LOADERS_PARAMETER_COUNT_H_
#define MOE_LOADERS_PARAMETER_COUNT_H_

#include <cstdint>

#include "loaders/model_spec.h"

namespace moe {

struct ParameterCount {
  int64_t total = 0;
  // Of these, what takes part in a token: of routed experts as many as it chooses, of tables that are indexed by hashed
  // n-grams or token ids nothing. Embedding and head are in it; publications count both, one or none of them.
  int64_t active = 0;
  int64_t embedding = 0;
  int64_t head = 0;  // 0 when tied
};
ParameterCount CountParameters(const ModelSpec& spec);

}  // namespace moe

#endif  // MOE_LOADERS_PARAMETER_COUNT_H_
