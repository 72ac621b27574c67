#include "engine/core/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/cache/kv_store.h"
#include "engine/cache/state_store.h"

namespace moe {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// Without --kv-cache-memory-gib the caches take at most this share of what is free: the machine has other users.
constexpr double kDefaultShare = 0.4;

// Saved states of a rank: more prefixes than these are rarely in use at once.
constexpr int64_t kMostSnapshots = 256;

// Slices with guesses in a step: speculative decoding pays with few sequences, and a state may be large.
constexpr int64_t kMostRollbacks = 8;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

std::string Size(double bytes) {
  char text[32];
  if (bytes >= kGib) {
    std::snprintf(text, sizeof(text), "%.2f GiB", bytes / kGib);
  } else {
    std::snprintf(text, sizeof(text), "%.2f MiB", bytes / kGib * 1024);
  }
  return text;
}

}  // namespace

StatusOr<MemoryPlan> PlanMemory(const ModelSpec& spec, const EngineOptions& options, DType act,
                                int64_t available_bytes) {
  MemoryPlan plan;
  const int64_t ranks = options.expert_parallel_size;
  const int64_t wanted_len = options.max_model_len > 0 ? options.max_model_len : spec.max_positions;
  if (wanted_len > spec.max_positions) {
    return InvalidError("max-model-len ", wanted_len, " is above the model's ", spec.max_positions, " positions");
  }
  if (wanted_len < 2) {
    return InvalidError("max-model-len ", wanted_len, " does not hold a prompt token and a generated one");
  }
  int64_t budget = options.kv_cache_memory_gib > 0 ? std::llround(options.kv_cache_memory_gib * kGib)
                                                   : std::llround(kDefaultShare * static_cast<double>(available_bytes));

  // Recurrent states first: a sequence cannot run without its slot.
  const int64_t slot_bytes = StateStore::BytesPerSlot(spec);
  int64_t slots = CeilDiv(options.max_num_seqs, ranks);
  if (slot_bytes > 0) {
    // With attention layers beside them the states get at most half.
    const int64_t state_budget = KvStore::BytesPerBlock(spec, act) > 0 ? budget / 2 : budget;
    const int64_t fitting = std::max<int64_t>(1, state_budget / (slot_bytes * ranks));
    if (fitting < slots) {
      plan.notes.push_back(Cat("max-num-seqs lowered from ", options.max_num_seqs, " to ", fitting * ranks,
                               ": a sequence's recurrent state takes ", Size(static_cast<double>(slot_bytes))));
      slots = fitting;
    }
    if (options.speculative != "off") {
      const int64_t rollback_budget = std::max<int64_t>(0, budget - slots * ranks * slot_bytes) / 8;
      plan.rollbacks_per_rank = std::min({kMostRollbacks, slots, rollback_budget / (slot_bytes * ranks)});
    }
    // Saved states share the budget with K/V: worth less than room for sequences, so an eighth of it at most.
    if (options.prefix_cache) {
      const int64_t snapshot_budget = std::max<int64_t>(0, budget - slots * ranks * slot_bytes) / 8;
      plan.snapshots_per_rank = std::min(kMostSnapshots, snapshot_budget / (slot_bytes * ranks));
    }
    plan.state_bytes = (slots + plan.snapshots_per_rank + plan.rollbacks_per_rank) * ranks * slot_bytes;
    budget -= plan.state_bytes;
  }
  plan.state_slots_per_rank = slots;

  const int64_t blocks_for_one = CeilDiv(wanted_len, kKvBlockTokens);
  const int64_t most_useful = blocks_for_one * slots;
  const int64_t block_bytes = KvStore::BytesPerBlock(spec, act);
  int64_t blocks = most_useful;
  if (block_bytes > 0) blocks = std::min(blocks, std::max<int64_t>(budget, 0) / (block_bytes * ranks));
  if (blocks < 1) {
    return InvalidError("kv-cache-memory-gib: ", Size(static_cast<double>(std::max<int64_t>(budget, 0))),
                        " do not hold one block of ", kKvBlockTokens, " tokens on each of ", ranks,
                        " rank(s), which takes ", Size(static_cast<double>(block_bytes * ranks)));
  }
  plan.max_model_len = std::min(wanted_len, blocks * kKvBlockTokens);
  if (plan.max_model_len < wanted_len) {
    if (options.max_model_len > 0) {
      return InvalidError("max-model-len ", wanted_len, " needs ",
                          Size(static_cast<double>(blocks_for_one * block_bytes * ranks)), " of K/V cache; there are ",
                          Size(static_cast<double>(budget)), " (kv-cache-memory-gib), enough for ", plan.max_model_len,
                          " tokens");
    }
    plan.notes.push_back(Cat("max-model-len lowered from the model's ", wanted_len, " to ", plan.max_model_len,
                             ", what the K/V cache holds"));
  }
  plan.kv_blocks_per_rank = blocks;
  plan.kv_bytes = blocks * block_bytes * ranks;
  return plan;
}

int64_t PackedWeightBytes(const ModelSpec& spec, DType format) {
  int64_t bytes = 0;
  for (const TensorNeed& need : RequiredTensors(spec)) {
    bytes += need.rows * need.cols * static_cast<int64_t>(DTypeSize(need.float32 ? DType::kF32 : format));
  }
  return bytes;
}

}  // namespace moe
