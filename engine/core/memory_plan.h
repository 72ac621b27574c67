// MemoryPlan: how much context and how many sequences fit, as a pure function of the model, the options and the memory.
#ifndef MOE_ENGINE_CORE_MEMORY_PLAN_H_
#define MOE_ENGINE_CORE_MEMORY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/engine_options.h"
#include "loaders/model_spec.h"
#include "parallel/base/dtype.h"
#include "parallel/base/status.h"

namespace moe {

struct MemoryPlan {
  int64_t max_model_len = 0;  // tokens of one sequence, prompt and output: the advertised and enforced limit
  int64_t kv_blocks_per_rank = 0;
  int64_t kv_bytes = 0;              // over all ranks
  int64_t state_slots_per_rank = 0;  // also the limit of running sequences of a rank
  int64_t snapshots_per_rank = 0;    // saved states for prefix reuse, of models with recurrent state
  int64_t rollbacks_per_rank = 0;    // saved states of sequences with guesses in a step, likewise
  int64_t state_bytes = 0;           // over all ranks
  std::vector<std::string> notes;    // what was lowered and why
};

// `available_bytes`: memory left for caches once the weights are packed. INVALID naming the option when what was asked
// for cannot be had.
StatusOr<MemoryPlan> PlanMemory(const ModelSpec& spec, const EngineOptions& options, DType act,
                                int64_t available_bytes);

// What the weights take in memory as `format`, from the shapes alone.
int64_t PackedWeightBytes(const ModelSpec& spec, DType format);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_MEMORY_PLAN_H_
