#include "parallel/dispatcher.h"

#include <chrono>
#include <cstring>

#include "parallel/base/check.h"

namespace moe {
namespace {

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
                                                int64_t top_k, int64_t layer) {
  MOE_CHECK_EQ(static_cast<int64_t>(experts.size()), num_rows * top_k);
  num_rows_ = num_rows;
  row_bytes_ = row_bytes;
  top_k_ = top_k;
  layer_ = layer;
  experts_ = experts;
  PlanSends(placement, rows);
  if (communicator_->size() > 1) MOE_RETURN_IF_ERROR(ExchangeRows());
  SortByExpert(placement.num_experts());
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
  for (int64_t t = 0; t < num_rows_; ++t) {
    const std::byte* row = rows + t * row_bytes_;
    for (int64_t s = 0; s < top_k_; ++s) {
      const int64_t slot = t * top_k_ + s;
      const int32_t expert = experts_[slot];
      if (expert < 0) continue;
      const int32_t target = size == 1 ? self : placement.Target(expert, self);
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

Status Dispatcher::ExchangeRows() {
  const Stopwatch watch(&exchange_seconds_);
  const int size = communicator_->size();
  const int self = communicator_->rank();
  counts_mine_.assign(2 * size, 0);
  counts_all_.resize(2 * size * size);
  for (int r = 0; r < size; ++r) {
    counts_mine_[2 * r] = send_rows_[r];
    counts_mine_[2 * r + 1] = static_cast<int32_t>(send_slots_[r].size());
  }
  MOE_RETURN_IF_ERROR(communicator_->AllGather(counts_mine_, counts_all_, {"counts", layer_}));

  std::vector<std::span<const std::byte>> send(size);
  std::vector<std::span<std::byte>> receive(size);
  for (int r = 0; r < size; ++r) {
    const auto pairs = std::as_bytes(std::span(send_pairs_[r]));
    send_[r].insert(send_[r].end(), pairs.begin(), pairs.end());
    send[r] = send_[r];
    bytes_sent_ += send_[r].size();
    const int64_t rows = counts_all_[2 * size * r + 2 * self];
    const int64_t pairs_in = counts_all_[2 * size * r + 2 * self + 1];
    receive_[r].resize(rows * row_bytes_ + pairs_in * 2 * static_cast<int64_t>(sizeof(int32_t)));
    receive[r] = receive_[r];
  }
  MOE_RETURN_IF_ERROR(communicator_->AllToAllV(send, receive, {"dispatch", layer_}));

  for (int r = 0; r < size; ++r) {
    entry_begin_[r] = static_cast<int32_t>(entries_.size());
    if (r == self) continue;
    const int64_t rows = counts_all_[2 * size * r + 2 * self];
    const int64_t pairs = counts_all_[2 * size * r + 2 * self + 1];
    const std::byte* base = receive_[r].data();
    for (int64_t i = 0; i < pairs; ++i) {
      int32_t pair[2];
      std::memcpy(pair, base + rows * row_bytes_ + i * static_cast<int64_t>(sizeof(pair)), sizeof(pair));
      MOE_CHECK(pair[0] >= 0 && pair[0] < rows) << "row index from rank " << r;
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

  const Stopwatch watch(&exchange_seconds_);
  back_send_.resize(size);
  back_receive_.resize(size);
  std::vector<std::span<const std::byte>> send(size);
  std::vector<std::span<std::byte>> receive(size);
  for (int r = 0; r < size; ++r) {
    const int32_t begin = r == self ? 0 : entry_begin_[r];
    const int32_t end = r == self ? 0 : entry_begin_[r + 1];
    back_send_[r].resize((end - begin) * row_bytes_);
    for (int32_t i = begin; i < end; ++i) {
      std::memcpy(back_send_[r].data() + (i - begin) * row_bytes_, results + sorted_position_[i] * row_bytes_,
                  row_bytes_);
    }
    send[r] = back_send_[r];
    bytes_sent_ += back_send_[r].size();
    back_receive_[r].resize(send_slots_[r].size() * row_bytes_);
    receive[r] = back_receive_[r];
  }
  MOE_RETURN_IF_ERROR(communicator_->AllToAllV(send, receive, {"combine", layer_}));
  for (int r = 0; r < size; ++r) {
    for (size_t i = 0; i < send_slots_[r].size(); ++i) {
      slot_rows_[send_slots_[r][i]] = back_receive_[r].data() + i * row_bytes_;
    }
  }
  return std::span<const std::byte* const>(slot_rows_);
}

}  // namespace moe
