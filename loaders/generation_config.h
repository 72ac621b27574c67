// generation_config.json: what the model's authors recommend for sampling.
#ifndef MOE_LOADERS_GENERATION_CONFIG_H_
#define MOE_LOADERS_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/status.h"

namespace moe {

// Absent fields are nullopt.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::vector<int32_t> eos_token_ids;  // replace config.json's when not empty
  std::vector<std::string> unused;     // fields that would change what is generated, but are not implemented
};

StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text, const std::string& file);

}  // namespace moe

#endif  // MOE_LOADERS_GENERATION_CONFIG_H_
