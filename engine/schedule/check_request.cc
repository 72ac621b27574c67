#include "engine/schedule/check_request.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace moe {
namespace {

// NaN fails every comparison, so each test states what is allowed.
Status CheckRange(const char* field, double value, double low, double high, bool low_open = false) {
  if ((low_open ? value > low : value >= low) && value <= high) return absl::OkStatus();
  return InvalidError(field, " is ", value, "; allowed is ", low_open ? "(" : "[", low, ", ", high, "]");
}

Status CheckPositiveFinite(const char* field, double value, bool zero_too) {
  if (std::isfinite(value) && (zero_too ? value >= 0 : value > 0)) return absl::OkStatus();
  return InvalidError(field, " is ", value, "; it must be finite and ", zero_too ? "0 or more" : "above 0");
}

Status CheckIds(const char* field, std::span<const int32_t> ids, int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return InvalidError(field, "[", i, "] is ", ids[i], "; token ids are 0 to ", vocab - 1);
    }
  }
  return absl::OkStatus();
}

Status CheckLogprobs(const char* field, const std::optional<int32_t>& value, int64_t vocab) {
  if (!value.has_value() || (*value >= -1 && *value <= vocab)) return absl::OkStatus();
  return InvalidError(field, " is ", *value, "; allowed is -1 (the whole vocabulary) to ", vocab);
}

}  // namespace

Status CheckRequest(const Request& request, const ModelSpec& spec, int64_t max_model_len) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return InvalidError("prompt is empty; at least one token is needed");
  if (prompt >= max_model_len) {
    return InvalidError("prompt has ", prompt, " tokens; the limit is ", max_model_len - 1, " (max_model_len ",
                        max_model_len, " holds the prompt and at least one generated token)");
  }
  MOE_RETURN_IF_ERROR(CheckIds("prompt", request.prompt, spec.vocab_size));

  const SamplingParams& s = request.sampling;
  MOE_RETURN_IF_ERROR(CheckPositiveFinite("temperature", s.temperature, true));
  MOE_RETURN_IF_ERROR(CheckRange("top_p", s.top_p, 0, 1, true));
  MOE_RETURN_IF_ERROR(CheckRange("min_p", s.min_p, 0, 1));
  MOE_RETURN_IF_ERROR(CheckPositiveFinite("repetition_penalty", s.repetition_penalty, false));
  MOE_RETURN_IF_ERROR(CheckRange("presence_penalty", s.presence_penalty, -2, 2));
  MOE_RETURN_IF_ERROR(CheckRange("frequency_penalty", s.frequency_penalty, -2, 2));
  for (const auto& [id, bias] : s.logit_bias) {
    if (id < 0 || id >= spec.vocab_size) {
      return InvalidError("logit_bias has token ", id, "; token ids are 0 to ", spec.vocab_size - 1);
    }
    // Minus infinity bans a token; plus infinity would leave no distribution.
    if (std::isnan(bias) || (std::isinf(bias) && bias > 0)) {
      return InvalidError("logit_bias of token ", id, " is ", bias, "; it must be a number below infinity");
    }
  }
  if (request.num_choices < 1) return InvalidError("n is 0; at least one choice is needed");

  if (request.max_new_tokens < 1) {
    return InvalidError("max_new_tokens is ", request.max_new_tokens, "; it must be at least 1");
  }
  if (request.min_new_tokens < 0 || request.min_new_tokens > request.max_new_tokens) {
    return InvalidError("min_new_tokens is ", request.min_new_tokens, "; allowed is 0 to max_new_tokens, ",
                        request.max_new_tokens);
  }
  MOE_RETURN_IF_ERROR(CheckIds("stop_token_ids", request.stop_token_ids, spec.vocab_size));
  MOE_RETURN_IF_ERROR(CheckLogprobs("logprobs", request.logprobs, spec.vocab_size));
  MOE_RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", request.prompt_logprobs, spec.vocab_size));
  return absl::OkStatus();
}

int64_t EffectiveMaxNewTokens(const Request& request, int64_t max_model_len) {
  return std::min(request.max_new_tokens, max_model_len - static_cast<int64_t>(request.prompt.size()));
}

}  // namespace moe
