// Arena: scratch memory of one step. Reset before a step, then only grows; after the largest step so far nothing is
// allocated. One thread.
#ifndef MOE_ENGINE_TENSOR_ARENA_H_
#define MOE_ENGINE_TENSOR_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace moe {

class Arena {
 public:
  // Everything handed out before becomes invalid. A step that needed several blocks leaves one block of their total.
  void Reset();

  // Uninitialised, 64-byte aligned.
  template <typename T>
  T* Allocate(int64_t count) {
    return reinterpret_cast<T*>(AllocateBytes(static_cast<size_t>(count) * sizeof(T)));
  }
  std::byte* AllocateBytes(size_t bytes);

  // `count` value-initialised objects; nobody destroys them.
  template <typename T>
  std::span<T> AllocateObjects(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    auto* first = reinterpret_cast<T*>(AllocateBytes(count * sizeof(T)));
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }

  // Scope: memory allocated after its construction is reused after its end.
  class Scope {
   public:
    explicit Scope(Arena* arena) : arena_(arena), block_(arena->current_), used_(arena->used_) {}
    ~Scope() {
      arena_->current_ = block_;
      arena_->used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena* arena_;
    size_t block_;
    size_t used_;
  };

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> data;
    size_t size = 0;
  };
  static Block NewBlock(size_t bytes);

  std::vector<Block> blocks_;
  size_t current_ = 0;  // block in use
  size_t used_ = 0;     // bytes of it
};

}  // namespace moe

#endif  // MOE_ENGINE_TENSOR_ARENA_H_
