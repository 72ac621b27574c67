// What the front (scheduler, no weights) and a rank process tell each other. Plain data: server/ranks maps it to the
// messages of worker.proto, tests and the simulation hand it over as it is.
//
//   rank                                          front
//   RankHello ─────────────────────────────────▶
//            ◀───────────────────────────────── LoadRank (or RefuseRank)
//   RankProgress … RankLoaded ─────────────────▶
//            ◀───────────────────────────────── ConfigureRank (once), FormGroup; StoreEntry both ways while they meet
//   RankFormed ────────────────────────────────▶
//            ◀───────────────────────────────── RankStep
//   RankStepDone ──────────────────────────────▶
//            ◀───────────────────────────────── AbortStep; PrepareExperts; FormGroup for the next generation
//
// A *slot* is a place for a rank, 0 … expert_parallel_size − 1, which the scheduler knows it by; a rank that comes back
// takes an empty one. A *generation* is a group of ranks that exchange rows; its members are numbered 0 … size − 1 in
// the order of their slots. Every message about a step names the generation: what belongs to another one is dropped.
#ifndef MOE_ENGINE_CORE_RANK_MESSAGES_H_
#define MOE_ENGINE_CORE_RANK_MESSAGES_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/schedule/step_plan.h"
#include "parallel/base/status.h"
#include "parallel/exchange_transport.h"
#include "parallel/placement.h"

namespace moe {

// --- From a rank ---

struct RankHello {
  std::string build;                  // version and source revision
  std::string checkpoint;             // CheckpointFingerprint
  std::string host;                   // ranks of one host share its memory
  std::vector<std::string> backends;  // names of Backend that its processor can run: "cpu-avx512bf16", …
};

struct RankProgress {
  double fraction = 0;
};

// The experts of LoadRank and the shared weights are packed.
struct RankLoaded {
  int64_t weight_bytes = 0;
  int64_t available_bytes = 0;  // memory of the host that is free now
};

// It cannot go on, and leaves.
struct RankFailed {
  Status status;
};

// How the members of a generation find each other (RendezvousStore). The front hands it to the other members.
struct StoreEntry {
  uint64_t generation = 0;
  std::string key;
  std::string value;
};

struct RankFormed {
  uint64_t generation = 0;
  Status status;     // not OK: it is in no group
  int suspect = -1;  // the member that it blames
};

// PrepareExperts is done. RESOURCE_EXHAUSTED: they do not fit.
struct RankPrepared {
  uint64_t ticket = 0;
  Status status;
};

// An answer to each RankStep of its generation.
struct RankStepDone {
  uint64_t generation = 0;
  uint64_t step = 0;
  Status status;      // not OK: no sequence of this rank has advanced
  int suspect = -1;   // the member that it blames
  RankResult result;  // with OK
};

using RankReport =
    std::variant<RankHello, RankProgress, RankLoaded, RankFailed, StoreEntry, RankFormed, RankPrepared, RankStepDone>;

// --- To a rank ---

// It is not wanted: `reason` names what differs, both values.
struct RefuseRank {
  std::string reason;
};

struct LoadRank {
  int slot = 0;
  std::string backend;  // one of RankHello::backends
  std::string dtype;    // EngineOptions::dtype
  ExpertLists experts;  // that it holds at first
};

struct ConfigureRank {
  int64_t kv_blocks = 0;
  int64_t state_slots = 0;
  int64_t state_snapshots = 0;
  int64_t rollback_slots = 0;
};

// Loads what of these it does not hold, beside the steps that run. Nothing is let go of before the next FormGroup,
// except with let_go: no step runs, and what is not of these makes room first.
struct PrepareExperts {
  uint64_t ticket = 0;
  ExpertLists experts;
  bool let_go = false;
};

// Between two steps. A rank that was in a generation leaves it.
struct FormGroup {
  uint64_t generation = 0;
  int member = 0;  // this rank's number
  int size = 1;
  ExchangeTransport transport = ExchangeTransport::kTcp;
  std::vector<ExpertPlacement> placements;  // [MoE layers], over the members
  // The members are those of the last generation, and it has not failed: they stay connected.
  bool same_group = false;
  // The last step was abandoned: a rank that has computed it takes it back (K/V only; where a model keeps more,
  // forget_sequences is set).
  uint64_t undo_step = 0;  // 0: none
  bool forget_sequences = false;
};

struct RankStep {
  uint64_t generation = 0;
  uint64_t step = 0;
  int64_t rows = 0;  // of all ranks: how long the others may take
  RankPlan plan;
};

// The generation is lost: exchanges that wait in it fail with `reason`. Overtakes other messages.
struct AbortStep {
  uint64_t generation = 0;
  std::string reason;
};

// Leave, in order.
struct StopRank {
  std::string reason;
};

using RankOrder = std::variant<RefuseRank, LoadRank, ConfigureRank, PrepareExperts, FormGroup, StoreEntry, RankStep,
                               AbortStep, StopRank>;

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_MESSAGES_H_
