// Delta: what is new of one choice since the client was last told. Deltas of a choice add up to its whole output, so a
// slow client's can be merged into one.
#ifndef MOE_SERVER_DELTA_H_
#define MOE_SERVER_DELTA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/request.h"

namespace moe {

struct Delta {
  uint32_t choice = 0;
  std::string text;
  std::vector<TokenInfo> tokens;
  std::vector<TokenInfo> prompt_tokens;
  std::vector<int32_t> expert_ids;  // [expert_rows, moe_layers, top_k]
  uint32_t expert_rows = 0;
  FinishReason finish = FinishReason::kNone;
  std::string stop_match;

  // Adds a later delta of the same choice.
  void Append(Delta later);
  // Memory held, about.
  int64_t Bytes() const;
};

// A request's account so far.
struct CallUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_prompt_tokens = 0;
  uint32_t generated_tokens = 0;  // shown ones: what the engine made beyond a stop string does not count
  RequestTimes times;             // zero until the request has ended
};

}  // namespace moe

#endif  // MOE_SERVER_DELTA_H_
