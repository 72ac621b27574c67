// The merges of a BPE model: which two neighbouring symbols join, in which order of preference, and into what.
#ifndef MOE_LOADERS_TOKENIZER_MERGE_TABLE_H_
#define MOE_LOADERS_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moe {

struct Merge {
  uint32_t rank;  // Lower joins first.
  int32_t new_id;
};

// An open-addressing hash table: the lookup is the innermost step of encoding.
class MergeTable {
 public:
  void Reserve(size_t num_merges);

  // A pair that is there already is overwritten. REQUIRES: Reserve() was given at least as many merges.
  void Add(int32_t left, int32_t right, Merge merge);

  // Null when the two do not join.
  const Merge* Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Index(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // Not a key: ids are not negative.
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Index(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(key >> 32 ^ key >> 7) & mask_;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  size_t mask_ = 1;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_MERGE_TABLE_H_
