#include "parallel/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr int64_t kPairBytes = 2 * sizeof(int32_t);

class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { *total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

StatusOr<Dispatcher::Work> Dispatcher::Dispatch(const ExpertPlacement& placement, const std::byte* rows,
                                                int64_t num_rows, int64_t row_bytes, std::span<const int32_t> experts,
                                                int64_t top_k, int64_t layer, int64_t most_rows) {
  MOE_CHECK_EQ(static_cast<int64_t>(experts.size()), num_rows * top_k);
  num_rows_ = num_rows;
  row_bytes_ = row_bytes;
  top_k_ = top_k;
  layer_ = layer;
  most_rows_ = most_rows;
  experts_ = experts;
  PlanSends(placement, rows);
  if (communicator_->size() > 1) MOE_RETURN_IF_ERROR(ExchangeRows(placement));
  SortByExpert(placement.num_experts());
  counters_.rows_computed += entries_.size();
  return Work{work_rows_, groups_};
}

void Dispatcher::PlanSends(const ExpertPlacement& placement, const std::byte* rows) {
  const int size = communicator_->size();
  const int self = communicator_->rank();
  send_.resize(size);
  send_pairs_.resize(size);
  send_slots_.resize(size);
  receive_.resize(size);
  send_rows_.assign(size, 0);
  for (int r = 0; r < size; ++r) {
    send_[r].clear();
    send_pairs_[r].clear();
    send_slots_[r].clear();
  }
  entries_.clear();
  local_slots_.clear();
  last_token_.assign(size, -1);
  // The layers of a step bring the same rows, so the last call knows what each rank brings but for the first layer.
  chooser_.Begin(placement, self, rows_of_rank_);
  for (int64_t t = 0; t < num_rows_; ++t) {
    const std::byte* row = rows + t * row_bytes_;
    for (int64_t s = 0; s < top_k_; ++s) {
      const int64_t slot = t * top_k_ + s;
      const int32_t expert = experts_[slot];
      if (expert < 0) continue;
      ++counters_.slots;
      const int32_t target = size == 1 ? self : chooser_.Next(expert);
      if (target == self) {
        entries_.push_back({row, expert});
        local_slots_.push_back(slot);
        continue;
      }
      if (last_token_[target] != t) {  // a row goes once to each rank
        last_token_[target] = t;
        send_[target].insert(send_[target].end(), row, row + row_bytes_);
        ++send_rows_[target];
      }
      send_pairs_[target].push_back(send_rows_[target] - 1);
      send_pairs_[target].push_back(expert);
      send_slots_[target].push_back(slot);
    }
  }
  entry_begin_.assign(size + 1, static_cast<int32_t>(entries_.size()));
}

Status Dispatcher::ExchangeCounts() {
  const Stopwatch watch(&counters_.counts_seconds);
  const int size = communicator_->size();
  parts_out_.resize(size);
  parts_in_.resize(size);
  for (int r = 0; r < size; ++r) {
    parts_out_[r] = std::as_bytes(std::span(&counts_out_[r], 1));
    parts_in_[r] = std::as_writable_bytes(std::span(&counts_in_[r], 1));
  }
  MOE_RETURN_IF_ERROR(communicator_->AllToAllV(parts_out_, parts_in_, {"counts", layer_}));
  ++counters_.exchanges;
  counters_.count_bytes += sizeof(Counts) * (size - 1);
  return absl::OkStatus();
}

void Dispatcher::NoteRowsOfRanks() {
  rows_of_rank_.resize(counts_in_.size());
  for (size_t r = 0; r < counts_in_.size(); ++r) rows_of_rank_[r] = std::max(0, counts_in_[r].all_rows);
}

Status Dispatcher::CheckCounts(int rank, int64_t most_rows) const {
  const Counts& counts = counts_in_[rank];
  if (counts.rows >= 0 && counts.pairs >= 0 && counts.rows <= most_rows && counts.pairs <= most_rows * top_k_) {
    return absl::OkStatus();
  }
  return CorruptError("rank ", rank, " announced ", counts.rows, " rows and ", counts.pairs, " pairs for layer ",
                      layer_);
}

Status Dispatcher::ExchangeExactly() {
  MOE_RETURN_IF_ERROR(ExchangeCounts());
  const Stopwatch watch(&counters_.dispatch_seconds);
  const int size = communicator_->size();
  parts_out_.resize(size);
  parts_in_.resize(size);
  for (int r = 0; r < size; ++r) {
    parts_out_[r] = send_[r];
    counters_.dispatch_bytes += send_[r].size();
    MOE_RETURN_IF_ERROR(CheckCounts(r, std::numeric_limits<int32_t>::max()));
    receive_[r].resize(counts_in_[r].rows * row_bytes_ + counts_in_[r].pairs * kPairBytes);
    parts_in_[r] = receive_[r];
  }
  ++counters_.exchanges;
  return communicator_->AllToAllV(parts_out_, parts_in_, {"dispatch", layer_});
}

// Rows and pairs from the beginning of a part, the counts at its end.
Status Dispatcher::ExchangePadded() {
  const Stopwatch watch(&counters_.dispatch_seconds);
  const int size = communicator_->size();
  const int64_t counts_at = most_rows_ * (row_bytes_ + top_k_ * kPairBytes);
  const size_t part = static_cast<size_t>(counts_at) + sizeof(Counts);
  parts_out_.resize(size);
  parts_in_.resize(size);
  for (int r = 0; r < size; ++r) {
    send_[r].resize(part);
    std::memcpy(send_[r].data() + counts_at, &counts_out_[r], sizeof(Counts));
    receive_[r].resize(part);
    parts_out_[r] = send_[r];
    parts_in_[r] = receive_[r];
  }
  ++counters_.exchanges;
  counters_.dispatch_bytes += part * static_cast<size_t>(size - 1);
  MOE_RETURN_IF_ERROR(communicator_->AllToAllV(parts_out_, parts_in_, {"dispatch", layer_}));
  for (int r = 0; r < size; ++r) {
    std::memcpy(&counts_in_[r], receive_[r].data() + counts_at, sizeof(Counts));
    MOE_RETURN_IF_ERROR(CheckCounts(r, most_rows_));
  }
  return absl::OkStatus();
}

Status Dispatcher::ExchangeRows(const ExpertPlacement& placement) {
  const int size = communicator_->size();
  const int self = communicator_->rank();
  if (most_rows_ > 0 && num_rows_ > most_rows_) {
    return absl::InternalError(Cat(num_rows_, " rows in a step of at most ", most_rows_, " a rank"));
  }
  // For each rank: the rows and pairs that follow, and how many rows we have in all (also those that stay).
  counts_out_.resize(size);
  counts_in_.resize(size);
  for (int r = 0; r < size; ++r) {
    counts_out_[r] = {send_rows_[r], static_cast<int32_t>(send_slots_[r].size()), static_cast<int32_t>(num_rows_)};
    counters_.rows_sent += send_rows_[r];
    counters_.slots_sent += send_slots_[r].size();
    const auto pairs = std::as_bytes(std::span(send_pairs_[r]));
    send_[r].insert(send_[r].end(), pairs.begin(), pairs.end());
  }
  const bool padded =
      most_rows_ > 0 &&
      most_rows_ * (row_bytes_ + top_k_ * kPairBytes) + static_cast<int64_t>(sizeof(Counts)) <= kMostPaddedBytes;
  MOE_RETURN_IF_ERROR(padded ? ExchangePadded() : ExchangeExactly());
  NoteRowsOfRanks();

  for (int r = 0; r < size; ++r) {
    entry_begin_[r] = static_cast<int32_t>(entries_.size());
    if (r == self) continue;
    const int64_t rows = counts_in_[r].rows;
    const int64_t pairs = counts_in_[r].pairs;
    const std::byte* base = receive_[r].data();
    for (int64_t i = 0; i < pairs; ++i) {
      int32_t pair[2];
      std::memcpy(pair, base + rows * row_bytes_ + i * static_cast<int64_t>(sizeof(pair)), sizeof(pair));
      if (pair[0] < 0 || pair[0] >= rows || !placement.Holds(pair[1], self)) {
        return CorruptError("rank ", r, " asked rank ", self, " for expert ", pair[1], " of row ", pair[0], " of ",
                            rows, " in layer ", layer_);
      }
      entries_.push_back({base + pair[0] * row_bytes_, pair[1]});
    }
  }
  entry_begin_[size] = static_cast<int32_t>(entries_.size());
  return absl::OkStatus();
}

void Dispatcher::SortByExpert(int64_t num_experts) {
  expert_begin_.assign(num_experts + 1, 0);
  for (const Entry& entry : entries_) ++expert_begin_[entry.expert + 1];
  groups_.clear();
  for (int64_t e = 0; e < num_experts; ++e) {
    expert_begin_[e + 1] += expert_begin_[e];
    if (expert_begin_[e + 1] > expert_begin_[e]) {
      groups_.push_back({static_cast<int32_t>(e), expert_begin_[e], expert_begin_[e + 1]});
    }
  }
  work_rows_.resize(entries_.size());
  sorted_position_.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int32_t position = expert_begin_[entries_[i].expert]++;
    sorted_position_[i] = position;
    work_rows_[position] = entries_[i].row;
  }
}

StatusOr<std::span<const std::byte* const>> Dispatcher::Return(const std::byte* results) {
  const int size = communicator_->size();
  const int self = communicator_->rank();
  slot_rows_.resize(num_rows_ * top_k_);
  for (size_t i = 0; i < local_slots_.size(); ++i) {
    slot_rows_[local_slots_[i]] = results + sorted_position_[i] * row_bytes_;
  }
  if (size == 1) return std::span<const std::byte* const>(slot_rows_);

  const Stopwatch watch(&counters_.combine_seconds);
  ++counters_.exchanges;
  back_send_.resize(size);
  back_receive_.resize(size);
  parts_out_.resize(size);
  parts_in_.resize(size);
  for (int r = 0; r < size; ++r) {
    const int32_t begin = r == self ? 0 : entry_begin_[r];
    const int32_t end = r == self ? 0 : entry_begin_[r + 1];
    back_send_[r].resize((end - begin) * row_bytes_);
    for (int32_t i = begin; i < end; ++i) {
      std::memcpy(back_send_[r].data() + (i - begin) * row_bytes_, results + sorted_position_[i] * row_bytes_,
                  row_bytes_);
    }
    parts_out_[r] = back_send_[r];
    counters_.combine_bytes += back_send_[r].size();
    back_receive_[r].resize(send_slots_[r].size() * row_bytes_);
    parts_in_[r] = back_receive_[r];
  }
  MOE_RETURN_IF_ERROR(communicator_->AllToAllV(parts_out_, parts_in_, {"combine", layer_}));
  for (int r = 0; r < size; ++r) {
    for (size_t i = 0; i < send_slots_[r].size(); ++i) {
      slot_rows_[send_slots_[r][i]] = back_receive_[r].data() + i * row_bytes_;
    }
  }
  return std::span<const std::byte* const>(slot_rows_);
}

}  // namespace moe
