#include "engine/tools/engine_flags.h"

#include <charconv>
#include <cstdint>
#include <map>
#include <string>

#include "parallel/base/status.h"

namespace moe {
namespace {

constexpr const char* kGroup = "Engine";

}  // namespace

CLI::Validator FiniteRange(double low, double high) {
  const std::string range = Cat("FLOAT in [", low, " - ", high, "]");
  return {[low, high, range](std::string& text) {
            double value = 0;
            const bool ok = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
            return ok ? std::string() : Cat("Value ", text, " is not a ", range);
          },
          range};
}

CLI::Validator SeedText() {
  return {[](std::string& text) {
            uint64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            if (error != std::errc() || stop != end) {
              return Cat("Value ", text, " is not a whole number in [0 - 18446744073709551615]");
            }
            text = std::to_string(value);  // 010 is ten, not eight
            return std::string();
          },
          "in [0 - 18446744073709551615]"};
}

CLI::Validator NotEmpty() {
  return {[](std::string& text) { return std::string(text.empty() ? "An empty text is not allowed" : ""); }, ""};
}

void AddEngineFlags(CLI::App* app, EngineOptions* options) {
  app->add_option("--device", options->device, "Where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "reference"}))
      ->envname("MOE_DEVICE")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--cpu-isa", options->cpu_isa, "Instruction set of the cpu device; auto: the best this processor has")
      ->check(CLI::IsMember({"auto", "amx", "avx512bf16", "avx512", "avx2"}))
      ->envname("MOE_CPU_ISA")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--dtype", options->dtype, "Weights and activations; auto: as the checkpoint stores its experts")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->envname("MOE_DTYPE")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--threads", options->threads, "Computing threads of all ranks together; 0: the usable cores")
      ->check(CLI::Range(0, 4096))
      ->envname("MOE_THREADS")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--expert-parallel-size", options->expert_parallel_size, "Ranks that share the experts")
      ->check(CLI::Range(1, 256))
      ->envname("MOE_EXPERT_PARALLEL_SIZE")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option(
         "--redundant-experts", options->redundant_experts,
         "Replicas of a layer's experts beyond one of each, for the busiest ones, when experts are moved to even "
         "the load of the ranks out (--rebalance-interval, Operations.RebalanceExperts)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->envname("MOE_REDUNDANT_EXPERTS")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option(
         "--rebalance-interval", options->rebalance_interval,
         "Seconds between two times that experts are moved to even the load of the ranks out; 0: only when asked")
      ->check(FiniteRange(0.0, 1e9))
      ->envname("MOE_REBALANCE_INTERVAL")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--rank-recovery-timeout", options->rank_recovery_timeout,
                  "Seconds that requests wait when too few ranks are left to hold all experts; then they end with "
                  "UNAVAILABLE, and new ones are refused until there are enough")
      ->check(FiniteRange(0.0, 1e9))
      ->envname("MOE_RANK_RECOVERY_TIMEOUT")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--max-model-len", options->max_model_len,
                  "Longest sequence in tokens, prompt and output; 0: what the model and the memory allow")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->envname("MOE_MAX_MODEL_LEN")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--max-num-seqs", options->max_num_seqs, "Sequences that run at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->envname("MOE_MAX_NUM_SEQS")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--max-num-batched-tokens", options->max_num_batched_tokens, "Tokens computed in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->envname("MOE_MAX_NUM_BATCHED_TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--kv-cache-memory-gib", options->kv_cache_memory_gib,
                  "Memory for K/V blocks and recurrent states in GiB; 0: a part of what is free")
      ->check(FiniteRange(0.0, 1e6))
      ->envname("MOE_KV_CACHE_MEMORY_GIB")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--prefix-cache", options->prefix_cache, "Reuse what was computed for the same beginning of a prompt")
      ->transform(CLI::CheckedTransformer(std::map<std::string, bool>{{"on", true}, {"off", false}}))
      ->envname("MOE_PREFIX_CACHE")
      ->default_str("on")
      ->group(kGroup);
  app->add_option("--itl-slowdown", options->itl_slowdown,
                  "How many times longer a token of a running stream may take while prompts of others are computed; "
                  "0: no limit")
      ->check(FiniteRange(0.0, 1e6))
      ->envname("MOE_ITL_SLOWDOWN")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--weight-cache", options->weight_cache,
                  "Directory that keeps the packed weights (as large as the checkpoint), so that the next start only "
                  "maps them")
      ->envname("MOE_WEIGHT_CACHE")
      ->group(kGroup);
  app->add_option(
         "--speculative", options->speculative,
         "ngram: compute guesses of the next tokens along with the last one, taken from earlier text that ends "
         "alike. The output is the same; text that repeats itself comes faster")
      ->check(CLI::IsMember({"off", "ngram"}))
      ->envname("MOE_SPECULATIVE")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--speculative-tokens", options->speculative_tokens, "Guesses of a sequence in one step at most")
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->envname("MOE_SPECULATIVE_TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--speculative-ngram-max", options->speculative_ngram_max,
                  "Tokens that have to stand before, longest first: at most")
      ->check(CLI::Range(int64_t{1}, int64_t{32}))
      ->envname("MOE_SPECULATIVE_NGRAM_MAX")
      ->capture_default_str()
      ->group(kGroup);
  app->add_option("--speculative-ngram-min", options->speculative_ngram_min, "… and at least")
      ->check(CLI::Range(int64_t{1}, int64_t{32}))
      ->envname("MOE_SPECULATIVE_NGRAM_MIN")
      ->capture_default_str()
      ->group(kGroup);
}

}  // namespace moe
