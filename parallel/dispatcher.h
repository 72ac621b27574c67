// Dispatcher: brings activation rows to the ranks that hold their experts, and one result row per (token, slot) back.
//
// A row goes once to each rank that needs it and comes back once per slot; the owner adds the slots up, in slot order,
// so nothing is ever summed on the wire. Rows for experts of this rank are never copied: Dispatch hands out pointers
// into `rows`, Return pointers into `results`.
//
// Exact exchange: the ranks tell each other their counts first. Padded exchange, for small steps whose size all ranks
// know: every part has the size of the largest that there can be, so one exchange does for both. Both carry the same
// rows.
//
// One layer call at a time: Dispatch, compute, Return. Buffers only grow, so a warm step allocates nothing.
#ifndef MOE_PARALLEL_DISPATCHER_H_
#define MOE_PARALLEL_DISPATCHER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/placement.h"
#include "parallel/replica_chooser.h"

namespace moe {

class Dispatcher {
 public:
  // `communicator` outlives this.
  explicit Dispatcher(Communicator* communicator) : communicator_(communicator) {}

  // Rows of one expert: [begin, end) of Work::rows.
  struct Group {
    int32_t expert = 0;
    int32_t begin = 0;
    int32_t end = 0;
  };
  // What this rank has to compute; valid until the next Dispatch.
  struct Work {
    std::span<const std::byte* const> rows;  // sorted by expert, then by sender and token
    std::span<const Group> groups;           // not empty ones
  };

  // `rows`: num_rows rows of row_bytes each; `experts`: [num_rows, top_k] expert ids; a
  // negative one asks nobody and its result is null. All ranks call this for every MoE
  // layer, also with num_rows = 0. `placement` may differ from call to call, but not between ranks. A peer that sends
  // what the placement does not allow: CORRUPT naming it. `most_rows`: no rank brings more to this call, and all ranks
  // say the same; 0: not known.
  StatusOr<Work> Dispatch(const ExpertPlacement& placement, const std::byte* rows, int64_t num_rows, int64_t row_bytes,
                          std::span<const int32_t> experts, int64_t top_k, int64_t layer, int64_t most_rows = 0);

  // Parts up to this size are padded.
  static constexpr int64_t kMostPaddedBytes = int64_t{64} << 10;

  // `results`: one row of row_bytes for each row of the Work, in its order. Returns pointers to the result rows of this
  // rank's own (token, slot)s, [num_rows * top_k]; valid until the next Dispatch and while `results` lives.
  StatusOr<std::span<const std::byte* const>> Return(const std::byte* results);

  // What this rank did since the start, for metrics; exchange_cost.h has what to expect.
  struct Counters {
    uint64_t exchanges = 0;       // communicator calls, of one phase of one layer each
    uint64_t count_bytes = 0;     // sent to other ranks to tell them the counts,
    uint64_t dispatch_bytes = 0;  // rows and their (row, expert) pairs, and
    uint64_t combine_bytes = 0;   // result rows
    uint64_t slots = 0;           // of this rank's (token, slot)s,
    uint64_t slots_sent = 0;      // those computed elsewhere
    uint64_t rows_sent = 0;       // rows sent for them: once to each rank
    uint64_t rows_computed = 0;   // rows of Work, from all ranks
    // Time in exchanges of each kind, waiting for the others included.
    double counts_seconds = 0;
    double dispatch_seconds = 0;
    double combine_seconds = 0;
  };
  const Counters& counters() const { return counters_; }
  // Bytes of rows and results that left this rank.
  uint64_t bytes_sent() const { return counters_.dispatch_bytes + counters_.combine_bytes; }
  double exchange_seconds() const {
    return counters_.counts_seconds + counters_.dispatch_seconds + counters_.combine_seconds;
  }

 private:
  // A (row, expert) pair to compute here, from any rank.
  struct Entry {
    const std::byte* row = nullptr;
    int32_t expert = 0;
  };
  // What a rank tells another before the rows.
  struct Counts {
    int32_t rows = 0;
    int32_t pairs = 0;
    int32_t all_rows = 0;
  };
  void PlanSends(const ExpertPlacement& placement, const std::byte* rows);
  // What each rank will send, then the rows.
  Status ExchangeRows(const ExpertPlacement& placement);
  Status ExchangeExactly();
  Status ExchangePadded();
  Status ExchangeCounts();
  // How many rows each rank brings, from counts_in_.
  void NoteRowsOfRanks();
  Status CheckCounts(int rank, int64_t most_rows) const;
  void SortByExpert(int64_t num_experts);

  Communicator* communicator_;
  int64_t num_rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t top_k_ = 0;
  int64_t layer_ = 0;
  int64_t most_rows_ = 0;
  std::span<const int32_t> experts_;

  std::vector<std::vector<std::byte>> send_;      // per rank: rows, then one (row index, expert) pair of int32 an entry
  std::vector<std::vector<int32_t>> send_pairs_;  // per rank
  std::vector<int32_t> send_rows_;                // per rank: number of rows
  std::vector<std::vector<int64_t>> send_slots_;  // per rank: the (token, slot) of each entry, in order of sending
  std::vector<std::vector<std::byte>> receive_;
  std::vector<int64_t> last_token_;  // per rank: the last token whose row was put into send_
  std::vector<Counts> counts_out_;   // per rank
  std::vector<Counts> counts_in_;
  std::vector<Entry> entries_;            // own ones first, then by sender
  std::vector<int64_t> local_slots_;      // the (token, slot) of the own entries
  std::vector<int32_t> entry_begin_;      // per sender: its first entry
  std::vector<int32_t> sorted_position_;  // of each entry in Work::rows
  std::vector<int32_t> expert_begin_;
  std::vector<const std::byte*> work_rows_;
  std::vector<Group> groups_;
  std::vector<const std::byte*> slot_rows_;
  std::vector<std::vector<std::byte>> back_send_;
  std::vector<std::vector<std::byte>> back_receive_;
  std::vector<std::span<const std::byte>> parts_out_;  // per rank, of the exchange that runs
  std::vector<std::span<std::byte>> parts_in_;
  ReplicaChooser chooser_;
  std::vector<int32_t> rows_of_rank_;  // in the last call
  Counters counters_;
};

}  // namespace moe

#endif  // MOE_PARALLEL_DISPATCHER_H_
