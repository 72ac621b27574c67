// LazyMemory: zeroed memory whose pages cost nothing until they are first touched, for caches sized for the worst case.
#ifndef MOE_ENGINE_TENSOR_LAZY_MEMORY_H_
#define MOE_ENGINE_TENSOR_LAZY_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "parallel/base/status.h"

namespace moe {

class LazyMemory {
 public:
  LazyMemory() = default;
  ~LazyMemory();
  LazyMemory(LazyMemory&& other) noexcept;
  LazyMemory& operator=(LazyMemory&& other) noexcept;

  // Page-aligned; RESOURCE_EXHAUSTED naming `purpose` when the address space is not to be had. 0 bytes: data() is null.
  static StatusOr<LazyMemory> Create(size_t bytes, const char* purpose);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Bytes that this process could still use: the machine's available memory, or what its control group leaves of its
// limit.
int64_t AvailableMemoryBytes();

}  // namespace moe

#endif  // MOE_ENGINE_TENSOR_LAZY_MEMORY_H_
