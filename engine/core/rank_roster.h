// RankRoster: the places for ranks (slots), who is in them, and what they hold. Bookkeeping and planning of the front;
// sends nothing. One thread.
#ifndef MOE_ENGINE_CORE_RANK_ROSTER_H_
#define MOE_ENGINE_CORE_RANK_ROSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/rank_messages.h"
#include "engine/core/rank_transport.h"
#include "loaders/model_spec.h"

namespace moe {

// What every rank of a group has in common.
struct RankTerms {
  std::string build;
  std::string checkpoint;
  std::string backend;  // name of Backend
  std::string dtype;    // EngineOptions::dtype
};

struct RankPlace {
  enum class State {
    kEmpty,
    kLoading,  // has LoadRank
    kReady,    // can become a member
    kMember,   // of the present generation
  };
  State state = State::kEmpty;
  RankTransport::LinkId link = 0;
  std::string host;
  double progress = 0;
  int64_t weight_bytes = 0;
  int64_t available_bytes = 0;
  ExpertLists held;
};

// A placement over some of the slots. Members are numbered in their order.
struct GroupPlan {
  std::vector<int> slots;                   // of the members, ascending
  std::vector<ExpertPlacement> placements;  // [MoE layers], over the members
  ExpertLists ExpertsOf(int member) const;
};

class RankRoster {
 public:
  RankRoster(const ModelSpec& spec, RankTerms terms, int num_slots);

  int num_slots() const { return static_cast<int>(places_.size()); }
  RankPlace& place(int slot) { return places_[slot]; }
  const RankPlace& place(int slot) const { return places_[slot]; }
  int Count(RankPlace::State state) const;
  // The slot of a connection; -1: none.
  int SlotOf(RankTransport::LinkId link) const;
  // With one of these states, ascending.
  std::vector<int> SlotsIn(RankPlace::State a, RankPlace::State b) const;

  // Gives a rank that has said hello an empty slot, with the experts to begin with in `held`. An error says why it is
  // refused, with both values.
  StatusOr<int> Admit(RankTransport::LinkId link, const RankHello& hello);
  void Clear(int slot) { places_[slot] = {}; }

  // Placements for these slots, with `redundant` replicas a layer (as many of them as the group can hold): even for the
  // loads noted so far. keep: what the ranks hold stays as far as it can.
  StatusOr<GroupPlan> Plan(std::vector<int> slots, int64_t redundant, bool keep) const;
  // Even for these loads.
  StatusOr<GroupPlan> Plan(std::vector<int> slots, int64_t redundant, bool keep,
                           const std::vector<std::vector<uint64_t>>& loads) const;

  // RankResult::expert_tokens of one rank and step.
  void NoteLoad(const std::vector<int64_t>& expert_tokens);

 private:
  std::vector<int64_t> experts_;  // [MoE layers]
  RankTerms terms_;
  std::vector<RankPlace> places_;
  std::vector<std::vector<uint64_t>> loads_;  // [MoE layers][experts] rows, older ones counting less
  uint64_t noted_ = 0;
};

// The same placements over all slots, for people.
std::vector<ExpertPlacement> OverSlots(const GroupPlan& plan, int num_slots);

}  // namespace moe

#endif  // MOE_ENGINE_CORE_RANK_ROSTER_H_
