// Memory for packed weights and scratch: aligned to cache lines, in huge pages where large.
#ifndef MOE_ENGINE_DEVICE_CPU_ALIGNED_BUFFER_H_
#define MOE_ENGINE_DEVICE_CPU_ALIGNED_BUFFER_H_

#include <cstddef>
#include <utility>

namespace moe::cpu {

// Zeroed on creation. Movable, not copyable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { Swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void Swap(AlignedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
  }

  char* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // of mmap; null: from the heap
  size_t mapped_ = 0;
};

// Gives the whole pages inside [data, data + bytes) of a buffer back to the system; they read as zeros afterwards.
void ReturnPages(char* data, size_t bytes);

// Scratch that only grows, so that a warm step allocates nothing.
class Scratch {
 public:
  // Contents are undefined. The pointer is valid until the next call.
  char* Get(size_t bytes) {
    if (bytes > buffer_.size()) {
      buffer_ = AlignedBuffer();
      buffer_ = AlignedBuffer(bytes + bytes / 4);
    }
    return buffer_.data();
  }
  template <typename T>
  T* GetAs(size_t count) {
    return reinterpret_cast<T*>(Get(count * sizeof(T)));
  }

 private:
  AlignedBuffer buffer_;
};

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_ALIGNED_BUFFER_H_
