// CheckRequest: the one place where a request's values meet the model and the limits.
#ifndef MOE_ENGINE_SCHEDULE_CHECK_REQUEST_H_
#define MOE_ENGINE_SCHEDULE_CHECK_REQUEST_H_

#include <cstdint>

#include "engine/schedule/request.h"
#include "loaders/model_spec.h"
#include "parallel/base/status.h"

namespace moe {

// OK, or INVALID_ARGUMENT naming field, value and allowed range. A prompt leaves room for one generated token, so it
// has fewer than max_model_len tokens; max_new_tokens may be larger than what is left (the engine lowers it).
Status CheckRequest(const Request& request, const ModelSpec& spec, int64_t max_model_len);

// The tokens a checked request may generate.
int64_t EffectiveMaxNewTokens(const Request& request, int64_t max_model_len);

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_CHECK_REQUEST_H_
