#include "loaders/tokenizer/word_cache.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace moe {
namespace {

constexpr size_t kSlots = 8192;  // × 64 bytes: stays in the second-level cache.
constexpr size_t kMaxWordBytes = 27;
constexpr size_t kMaxIds = 8;

}  // namespace

struct alignas(64) WordCache::Slot {
  std::atomic<bool> busy{false};  // Guards all that follows.
  bool variant = false;
  uint8_t word_bytes = 0;  // 0: empty slot
  uint8_t num_ids = 0;
  char word[kMaxWordBytes];
  int32_t ids[kMaxIds];

  bool TryLock() { return !busy.exchange(true, std::memory_order_acquire); }
  void Unlock() { busy.store(false, std::memory_order_release); }
  bool Holds(std::string_view other, bool other_variant) const {
    return word_bytes == other.size() && variant == other_variant && std::memcmp(word, other.data(), other.size()) == 0;
  }
};

WordCache::WordCache() : slots_(std::make_unique<Slot[]>(kSlots)) {}
WordCache::~WordCache() = default;

WordCache::Slot* WordCache::SlotFor(std::string_view word, bool variant) {
  if (word.empty() || word.size() > kMaxWordBytes) return nullptr;
  return &slots_[(std::hash<std::string_view>()(word) + (variant ? 1 : 0)) % kSlots];
}

bool WordCache::Find(std::string_view word, bool variant, std::vector<int32_t>* ids) {
  Slot* slot = SlotFor(word, variant);
  if (slot == nullptr || !slot->TryLock()) return false;
  const bool hit = slot->Holds(word, variant);
  if (hit) ids->insert(ids->end(), slot->ids, slot->ids + slot->num_ids);
  slot->Unlock();
  return hit;
}

void WordCache::Insert(std::string_view word, bool variant, std::span<const int32_t> ids) {
  Slot* slot = SlotFor(word, variant);
  if (slot == nullptr || ids.size() > kMaxIds || !slot->TryLock()) return;
  slot->variant = variant;
  slot->word_bytes = static_cast<uint8_t>(word.size());
  slot->num_ids = static_cast<uint8_t>(ids.size());
  std::memcpy(slot->word, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), slot->ids);
  slot->Unlock();
}

}  // namespace moe
