// ReplicaChooser: which replica computes a row. Only the sender decides and only the sender knows; replicas compute the
// same bits, so results do not depend on it, but the load of the ranks and the bytes on the wire do:
//  - over all senders a replica gets its share (ExpertPlacement::SharesOf) of the expert's rows, also when the senders
//    bring unequal numbers of rows, down to a single sender that brings them all;
//  - as far as that allows, a rank keeps its own rows: they need no wire.
// Both hold when the rows of every sender choose alike; counts are met up to rounding, which differs from sender to
// sender. No clock and no random numbers: the same call chooses the same.
#ifndef MOE_PARALLEL_REPLICA_CHOOSER_H_
#define MOE_PARALLEL_REPLICA_CHOOSER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/placement.h"

namespace moe {

class ReplicaChooser {
 public:
  // For the rows of one layer call of rank `sender`. rows_of_rank: how many rows each rank brings, or about; empty:
  // equally many. `placement` outlives the calls of Next.
  void Begin(const ExpertPlacement& placement, int sender, std::span<const int32_t> rows_of_rank);

  // The rank for the next row that asks for `expert`.
  int32_t Next(int32_t expert) {
    const auto ranks = placement_->RanksOf(expert);
    return ranks.size() == 1 ? ranks[0] : NextOfSeveral(expert);
  }

 private:
  int32_t NextOfSeveral(int32_t expert);
  int32_t Prepare(int32_t expert);

  // An expert of this call with several replicas.
  struct Spread {
    int32_t begin = 0;    // of its bounds_
    double position = 0;  // of its next row in [0, 1)
  };

  const ExpertPlacement* placement_ = nullptr;
  int sender_ = 0;
  std::vector<double> rows_of_rank_;  // in parts of all
  std::vector<int32_t> spread_of_;    // [experts] index into spreads_, -1: not asked for yet
  std::vector<Spread> spreads_;
  std::vector<double> bounds_;  // per spread and replica: this sender's rows below it (and not below the one before)
};

}  // namespace moe

#endif  // MOE_PARALLEL_REPLICA_CHOOSER_H_
