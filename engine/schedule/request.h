// A request as the engine sees it: token ids in, token ids out; every default already filled in and every value checked
// (CheckRequest). Text never gets here.
#ifndef MOE_ENGINE_SCHEDULE_REQUEST_H_
#define MOE_ENGINE_SCHEDULE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

struct SamplingParams {
  float temperature = 1.0f;                           // 0: greedy
  float top_p = 1.0f;                                 // (0, 1]
  uint32_t top_k = 0;                                 // 0: off; above the vocabulary: off
  float min_p = 0.0f;                                 // [0, 1]
  float repetition_penalty = 1.0f;                    // > 0
  float presence_penalty = 0.0f;                      // [-2, 2]
  float frequency_penalty = 0.0f;                     // [-2, 2]
  uint64_t seed = 0;                                  // always set: the server draws one when the client gives none
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id → added; each id once

  bool NeedsHistory() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct Request {
  std::string id;               // the client's, or generated
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  uint32_t num_choices = 1;

  int64_t max_new_tokens = 0;          // ≥ 1; the engine lowers it to what is left of the context
  int64_t min_new_tokens = 0;          // end and stop tokens are impossible before that many tokens
  std::vector<int32_t> eos_token_ids;  // empty with ignore_eos
  std::vector<int32_t> stop_token_ids;

  std::optional<int32_t> logprobs;         // alternatives a position; -1: the whole vocabulary
  std::optional<int32_t> prompt_logprobs;  // likewise, for the prompt
  bool routed_experts = false;

  int32_t priority = 0;  // higher first
  std::string cache_salt;
};

enum class FinishReason { kNone, kEos, kStop, kLength, kCancelled };

struct TokenProb {
  int32_t id = 0;
  float logprob = 0;
};

// One token with what was asked about it. Log-probabilities are natural and of the model's own distribution, before
// penalties, bias, temperature and filters.
struct TokenInfo {
  int32_t id = 0;
  float logprob = 0;
  uint32_t rank = 0;           // 1 is the most likely; equal ones rank by id; 0: not asked for
  std::vector<TokenProb> top;  // most likely first, equal ones by id
};

// What a step produced for one choice. Rows of expert ids are [moe_layers, top_k] each, the checkpoint's own ids.
struct OutputChunk {
  uint32_t choice = 0;
  std::vector<TokenInfo> prompt_tokens;  // with prompt_logprobs: entry i tells of prompt token i; entry 0 is empty
  std::vector<TokenInfo> tokens;
  std::vector<int32_t> expert_ids;  // rows new since the last chunk, flattened
  uint32_t expert_rows = 0;
  FinishReason finish = FinishReason::kNone;  // set on the last chunk of the choice
  uint32_t cached_prompt_tokens = 0;
};

struct RequestTimes {
  double queue_seconds = 0;
  double time_to_first_token_seconds = 0;
  double total_seconds = 0;
};

// Receives a request's results. Called on the engine's thread; must only hand over (never block, never call back into
// the engine other than through its thread-safe methods).
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void OnOutput(OutputChunk chunk) = 0;
  // Exactly once, last. OK: every choice ended with its finish reason (also kCancelled through Abort).
  virtual void OnDone(const Status& status, const RequestTimes& times) = 0;
};

}  // namespace moe

#endif  // MOE_ENGINE_SCHEDULE_REQUEST_H_
