#include "engine/device/cpu/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "parallel/base/check.h"

namespace moe::cpu {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // Below a few huge pages, rounding up to one would waste more than its fewer TLB misses save.
  if (bytes < 4 * kHugePage) {
    const size_t rounded = RoundUp(bytes, kCacheLine);
    data_ = static_cast<char*>(std::aligned_alloc(kCacheLine, rounded));
    MOE_CHECK(data_ != nullptr) << "out of memory: " << bytes << " bytes";
    std::memset(data_, 0, rounded);
    return;
  }
  mapped_ = RoundUp(bytes, kHugePage) + kHugePage;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MOE_CHECK(mapping_ != MAP_FAILED) << "out of memory: " << bytes << " bytes";
  data_ = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
  madvise(data_, RoundUp(bytes, kHugePage), MADV_HUGEPAGE);  // a hint: failing changes nothing but speed
}

void ReturnPages(char* data, size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t begin = RoundUp(reinterpret_cast<uintptr_t>(data), kPage);
  const size_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

AlignedBuffer::~AlignedBuffer() {
  if (mapping_ != nullptr) {
    munmap(mapping_, mapped_);
  } else {
    std::free(data_);
  }
}

}  // namespace moe::cpu
