// Remembers the ids of short pieces of text. Fixed in size, and safe to use from several threads at once: a slot that
// another thread is using counts as a miss, so nobody ever waits.
#ifndef MOE_LOADERS_TOKENIZER_WORD_CACHE_H_
#define MOE_LOADERS_TOKENIZER_WORD_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace moe {

class WordCache {
 public:
  WordCache();
  ~WordCache();

  // `variant` keeps apart two ways of encoding the same word. Find appends the ids and returns true on a hit.
  bool Find(std::string_view word, bool variant, std::vector<int32_t>* ids);
  // Does nothing for a word that is too long or has too many ids.
  void Insert(std::string_view word, bool variant, std::span<const int32_t> ids);

 private:
  struct Slot;

  Slot* SlotFor(std::string_view word, bool variant);

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace moe

#endif  // MOE_LOADERS_TOKENIZER_WORD_CACHE_H_
