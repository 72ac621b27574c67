#include "loaders/generation_config.h"

#include <limits>
#include <utility>

#include "loaders/config_reader.h"
#include "loaders/json_text.h"

namespace moe {
namespace {

// What transformers' generate() goes by and requests here cannot say, with the value that changes nothing.
constexpr std::pair<const char*, const char*> kNotImplemented[] = {
    {"suppress_tokens", "null"},
    {"begin_suppress_tokens", "null"},
    {"bad_words_ids", "null"},
    {"sequence_bias", "null"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"forced_decoder_ids", "null"},
    {"exponential_decay_length_penalty", "null"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1.0"},
    {"typical_p", "1.0"},
    {"top_h", "null"},
    {"epsilon_cutoff", "0.0"},
    {"eta_cutoff", "0.0"},
    {"stop_strings", "null"},
    {"min_new_tokens", "0"},
    {"min_length", "0"},
    {"num_beams", "1"},
    {"penalty_alpha", "0.0"},
    {"guidance_scale", "1.0"},
    {"watermarking_config", "null"},
};

}  // namespace

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
  for (const auto& [name, neutral] : kNotImplemented) {
    const auto field = document.find(name);
    if (field == document.end() || field->is_null() || *field == nlohmann::json::parse(neutral)) continue;
    if (field->is_structured() && field->empty()) continue;
    result.unused.emplace_back(name);
  }
  return result;
}

}  // namespace moe
