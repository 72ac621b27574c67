// What can be set about an engine, and what it then chose.
#ifndef MOE_ENGINE_CORE_ENGINE_OPTIONS_H_
#define MOE_ENGINE_CORE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

struct EngineOptions {
  std::string device = "auto";            // auto | cpu | reference
  std::string cpu_isa = "auto";           // auto | amx | avx512bf16 | avx512 | avx2
  std::string dtype = "auto";             // auto | float32 | bfloat16
  int threads = 0;                        // 0: usable cores
  int expert_parallel_size = 1;           // ranks, as threads of this process
  double rebalance_interval = 0;          // seconds; 0: experts move only when asked to
  double rank_recovery_timeout = 60;      // seconds that requests wait for ranks to come back, if too few are left
  std::string rank_transport = "tcp";     // between ranks as processes: ParseTransport
  int64_t redundant_experts = 0;          // replicas of a layer beyond one of each expert, when they move
  int64_t max_model_len = 0;              // 0: the model's max_positions, or what the K/V memory holds
  int64_t max_num_seqs = 256;             // running at once
  int64_t max_num_batched_tokens = 2048;  // rows of one step
  int64_t max_queue = 1024;               // waiting requests; more: RESOURCE_EXHAUSTED
  double kv_cache_memory_gib = 0;         // 0: chosen from the model and the machine's free memory
  std::string weight_cache;               // directory for packed weights (engine/device/packed_cache.h); empty: none
  double itl_slowdown = 1.5;              // of running streams by prompts of others; 0: no limit (prefill_pacer.h)
  bool prefix_cache = true;               // models with recurrent state reuse prefixes through saved states
  std::string speculative = "off";        // off | ngram: compute guesses of the next tokens along, same tokens
  int64_t speculative_tokens = 5;         // guesses of one sequence and step at most
  int64_t speculative_ngram_max = 4;      // guesses follow the last this many tokens where they stood before …
  int64_t speculative_ngram_min = 2;      // … or as few as this
};

// The choices that Create made, for banner, GetModel and inspect.
struct EngineInfo {
  std::string backend;       // "cpu-avx512bf16"
  std::string weight_dtype;  // "bfloat16"
  std::string act_dtype;
  int ranks = 1;
  int threads = 1;
  int64_t max_model_len = 0;  // the enforced one
  int64_t kv_blocks = 0;      // over all ranks
  int64_t kv_block_tokens = 0;
  int64_t kv_bytes = 0;
  int64_t weight_bytes = 0;  // packed and mapped
  int64_t state_slots = 0;
  double load_seconds = 0;
  std::vector<std::string> notes;  // lines for the banner: what was chosen and why ("float16 weights run …")
};

}  // namespace moe

#endif  // MOE_ENGINE_CORE_ENGINE_OPTIONS_H_
