// ExpertPacking: one layer's expert replicas on the slots of the ranks, while they are being balanced. A replica
// carries a share of its expert's load; shares need not be equal, because a sender spreads its rows by them
// (ReplicaChooser). So a packing is good when the *graph* of experts and ranks lets the load level out, which asks far
// less of it than equal shares do.
//
// Deterministic: ties go to the lowest expert, then to the lowest rank.
#ifndef MOE_PARALLEL_EXPERT_PACKING_H_
#define MOE_PARALLEL_EXPERT_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace moe {

// What a packing is made of; outlives it.
struct PackingProblem {
  std::vector<double> loads;            // [experts] ≥ 0, not all 0
  std::vector<int32_t> slots;           // [ranks] replicas it has room for; together at least the experts
  std::vector<int32_t> node_of_rank;    // [ranks]
  std::vector<int32_t> node_of_expert;  // [experts] the only node that may hold it, or -1: any

  int num_experts() const { return static_cast<int>(loads.size()); }
  int num_ranks() const { return static_cast<int>(slots.size()); }
  double MeanLoad() const;  // per rank
  // No packing has a less loaded busiest rank, whatever the shares: at a level T an expert needs ⌈load / T⌉ ranks, and
  // the ranks with slots share everything. (Not tight below three slots a rank.)
  double LeastBusiestLoad() const;
  bool MayHold(int32_t expert, int32_t rank) const {
    return node_of_expert[expert] < 0 || node_of_expert[expert] == node_of_rank[rank];
  }
};

class ExpertPacking {
 public:
  struct Piece {
    int32_t rank = 0;
    double load = 0;
  };

  explicit ExpertPacking(const PackingProblem* problem);

  // A new packing: the hottest experts replicated until the slots are used up (greedy by load per replica), then
  // heaviest first to the least loaded rank that has room, as in EPLB's `replicate_experts` and `balanced_packing`.
  void Pack();
  // Another new packing, for few slots per rank, where what lies beside a hot replica decides: the hottest expert fills
  // rank after rank up to `level`, each beside the coldest experts; what is no longer hot goes as in Pack without
  // replicas. REQUIRES: any node may hold any expert.
  void PackTight(double level);
  // The packing nearest to `present` ([experts] ranks, may be empty) that the slots allow: surplus replicas dropped,
  // missing experts placed, free slots filled.
  void PackLike(std::span<const std::vector<int32_t>> present);

  // Levels the load out by the shares alone: nothing moves.
  void LevelShares();
  // Swaps experts between ranks and turns redundant replicas into replicas of busier experts until the busiest rank
  // has at most `goal` or stops falling, in at most `steps`.
  void Improve(double goal, int steps);
  // Random swaps and replacements (a function of the seed), cooled down; keeps the best. For what Improve cannot reach:
  // slow (a few µs a step).
  void Anneal(double goal, int steps, uint32_t seed);

  // Sum of the eighth powers of the ranks' loads in means: falls when the busiest ranks fall.
  double Unevenness() const;
  double BusiestLoad() const { return load_[BusiestRank()]; }
  const std::vector<Piece>& PiecesOf(int32_t expert) const { return pieces_[expert]; }
  const std::vector<int32_t>& ExpertsOf(int32_t rank) const { return experts_[rank]; }
  bool Holds(int32_t expert, int32_t rank) const { return holds_[expert * problem_->num_ranks() + rank] != 0; }

  // Rank r takes what was on rank source[r]; both have the same slots and node.
  void Relabel(std::span<const int32_t> source);

 private:
  int32_t BusiestRank() const;
  double PieceLoad(int32_t expert, int32_t rank) const;
  bool HasRoom(int32_t rank) const { return static_cast<int32_t>(experts_[rank].size()) < problem_->slots[rank]; }
  // The least loaded rank with room that may take a (further) replica of `expert`; -1: none.
  int32_t RoomFor(int32_t expert) const;
  void Add(int32_t expert, int32_t rank, double load);
  void Remove(int32_t expert, int32_t rank);  // its load goes to nobody until Pour
  void Pour(int32_t expert);                  // its load over its replicas so that their ranks come out level
  void PlaceMissing(int32_t expert);
  void FillFreeSlots();
  void Swap(int32_t a, int32_t rank_a, int32_t b, int32_t rank_b);
  void Replace(int32_t dropped, int32_t added, int32_t rank);
  bool SwapFromBusiest();
  bool ReplicateFromBusiest();

  const PackingProblem* problem_;
  std::vector<std::vector<Piece>> pieces_;     // [experts]
  std::vector<std::vector<int32_t>> experts_;  // [ranks]
  std::vector<uint8_t> holds_;                 // [experts, ranks]
  std::vector<double> load_;                   // [ranks]
};

}  // namespace moe

#endif  // MOE_PARALLEL_EXPERT_PACKING_H_
