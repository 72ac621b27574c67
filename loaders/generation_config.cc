#include "loaders/generation_config.h"

#include <limits>

#include "loaders/config_reader.h"
#include "loaders/json_text.h"

namespace moe {

StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text, const std::string& file) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  // What a request may say (float32), so that every default is a value that requests could give.
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kSmallest = std::numeric_limits<float>::min();
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document,
                       ParseJson(text, file, {.max_bytes = kMaxBytes, .non_finite = true}));
  ConfigReader config(&document, file);
  GenerationConfig result;
  result.do_sample = config.OptionalBool("do_sample");
  result.temperature = config.OptionalFloat("temperature", 0, kLargest);
  result.top_p = config.OptionalFloat("top_p", kSmallest, 1);
  result.top_k = config.OptionalInt("top_k", 0, limits::kMaxVocab);
  result.min_p = config.OptionalFloat("min_p", 0, 1);
  result.repetition_penalty = config.OptionalFloat("repetition_penalty", kSmallest, kLargest);
  result.max_new_tokens = config.OptionalInt("max_new_tokens", 1, limits::kMaxPositions);
  for (const int64_t id : config.IntOrList("eos_token_id", 0, limits::kMaxVocab)) {
    result.eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  MOE_RETURN_IF_ERROR(config.status());
  return result;
}

}  // namespace moe
