// Random schedules of communicator operations that every rank derives from a seed, and the check of what arrives.
#ifndef MOE_TESTS_PARALLEL_SCHEDULES_H_
#define MOE_TESTS_PARALLEL_SCHEDULES_H_

#include <cstdint>
#include <random>
#include <vector>

#include "parallel/communicator.h"

namespace moe {

// The byte at `i` of what `from` sends to `to` in operation `round`.
inline std::byte PatternByte(uint64_t round, int from, int to, size_t i) {
  return static_cast<std::byte>(round * 131 + static_cast<uint64_t>(from) * 31 + static_cast<uint64_t>(to) * 7 + i +
                                i / 251);
}

// Sizes[from][to] of the parts of one all-to-all. Reusable buffers, as an engine has them.
class AllToAllCase {
 public:
  using Sizes = std::vector<std::vector<size_t>>;

  // Runs one operation; an error text when it fails or something else than the pattern arrives, else empty.
  std::string Run(Communicator& c, const Sizes& sizes, uint64_t round) {
    const int n = c.size();
    out_.resize(n);
    in_.resize(n);
    std::vector<std::span<const std::byte>> send(n);
    std::vector<std::span<std::byte>> receive(n);
    for (int r = 0; r < n; ++r) {
      out_[r].resize(sizes[c.rank()][r]);
      for (size_t i = 0; i < out_[r].size(); ++i) out_[r][i] = PatternByte(round, c.rank(), r, i);
      in_[r].assign(sizes[r][c.rank()], std::byte{0xee});
      send[r] = out_[r];
      receive[r] = in_[r];
    }
    const Status status = c.AllToAllV(send, receive, {"test", static_cast<int64_t>(round)});
    if (!status.ok()) return status.ToString();
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < in_[r].size(); ++i) {
        if (in_[r][i] != PatternByte(round, r, c.rank(), i)) {
          return Cat("round ", round, ": byte ", i, " of ", in_[r].size(), " from rank ", r, " is wrong");
        }
      }
    }
    return "";
  }

 private:
  std::vector<std::vector<std::byte>> out_;
  std::vector<std::vector<std::byte>> in_;
};

// `rounds` operations of all kinds. An error text or empty.
inline std::string RunSchedule(Communicator& c, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);  // the same draws on every rank
  std::mt19937_64 own(seed + static_cast<uint64_t>(c.rank()));
  const int n = c.size();
  AllToAllCase all_to_all;
  for (int round = 0; round < rounds; ++round) {
    if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    const uint64_t kind = random() % 8;
    if (kind < 4) {
      AllToAllCase::Sizes sizes(n, std::vector<size_t>(n));
      const uint64_t limit = random() % 4 == 0 ? 200'000 : 300;
      for (auto& row : sizes) {
        for (size_t& size : row) size = random() % 3 == 0 ? 0 : random() % limit;
      }
      const std::string error = all_to_all.Run(c, sizes, round);
      if (!error.empty()) return error;
    } else if (kind < 6) {
      std::vector<int32_t> mine(random() % 40);
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<int32_t>(1000 * c.rank() + round + i);
      std::vector<int32_t> all(mine.size() * n, -1);
      const Status status = c.AllGather(mine, all, {"gather", round});
      if (!status.ok()) return status.ToString();
      for (size_t i = 0; i < all.size(); ++i) {
        const auto expected = static_cast<int32_t>(1000 * (i / mine.size()) + round + i % mine.size());
        if (all[i] != expected) return Cat("round ", round, ": gathered ", all[i], ", not ", expected);
      }
    } else if (kind == 6) {
      const int root = static_cast<int>(random() % n);
      std::vector<std::byte> bytes(random() % 5000);
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = c.rank() == root ? PatternByte(round, root, root, i) : std::byte{0xee};
      }
      const Status status = c.Broadcast(bytes, root, {"broadcast", round});
      if (!status.ok()) return status.ToString();
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != PatternByte(round, root, root, i)) return Cat("round ", round, ": wrong byte ", i, " of root");
      }
    } else {
      const Status status = c.Barrier({"barrier", round});
      if (!status.ok()) return status.ToString();
    }
  }
  return "";
}

}  // namespace moe

#endif  // MOE_TESTS_PARALLEL_SCHEDULES_H_
